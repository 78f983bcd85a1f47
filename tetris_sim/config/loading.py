"""Config: a checked configuration in SI units, from a file, a text or Python data.

Begin with `load_config`, `read_config` and `make_config`. A configuration is valid as a whole or
not at all: all of its mistakes are collected in one `ConfigMistakesError`, each with the position
where it was written. The file takes precedence over the environment, and --set over the file.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from tetris_sim.apps import AnyModel
from tetris_sim.apps.heat.labels import as_in_file
from tetris_sim.apps.heat.model import HeatModel
from tetris_sim.config.checks import (
    check_in_space,
    check_initial,
    check_together,
    mixed_units,
)
from tetris_sim.config.overrides import (
    Override,
    apply_defaults,
    apply_overrides,
    expand_paths,
    look_once,
    read_environment,
    read_override,
    use_library,
)
from tetris_sim.config.section_checks import (
    KeyKind,
    as_written,
    check_sections,
    keys_of,
    open_annotation,
)
from tetris_sim.config.sections.conditions import GaussianInitial
from tetris_sim.config.sections.grid import check_axes
from tetris_sim.config.sections.quantities import ABSOLUTE_ZERO, Quantity, Section
from tetris_sim.config.sections.schema import Request
from tetris_sim.config.sections.varying import TemperatureTable, TimeTable, Varying
from tetris_sim.config.yaml import (
    MOST_CHARACTERS,
    Node,
    plain_values,
    read_yaml,
    write_yaml,
)
from tetris_sim.errors import (
    ConfigMistakesError,
    Finding,
    KeyPath,
    Mistake,
    SourcePosition,
    TetrisError,
    UnstableStepError,
)
from tetris_sim.model.formula import UNKNOWN_NAME
from tetris_sim.model.problem import Problem
from tetris_sim.support.wording import label, svg, table

# A configuration as a notebook shows it: its sections, and the box with its faces.

_LONGEST_LINE = 160  # characters of a value


def request_page(request: Request, said: Mapping[str, Any]) -> str:
    """A configuration as an HTML table with a drawing of the box.

    Args:
        request: the configuration.
        said: its sections as they were given, by key.
    """
    rows = [(key, _in_a_line(value)) for key, value in said.items()]
    return table(request.title or "Configuration", rows, picture=_drawing(request))


def _drawing(request: Request) -> str:
    """The box seen along its last axis, with the type of condition at each face."""
    sizes = request.grid.size or tuple(
        n * h
        for n, h in zip(
            request.grid.shape, request.grid.spacing or (1.0,) * request.ndim, strict=True
        )
    )
    # To scale, the longest edge 180 units; thin boxes keep a width that holds the labels.
    longest = max(sizes[:2])
    width = max(40.0, 180.0 * sizes[0] / longest)
    height = max(24.0, 180.0 * sizes[1] / longest) if request.ndim > 1 else 24.0
    left, top = 84.0, 34.0
    first, *others = request.grid.names

    def face(name: str) -> str:
        # The same precedence as everywhere: the face's own name before its axis before `*`.
        kinds = [
            found
            for key in (name, name[:-1], "*")
            if (found := request.boundaries.get(key)) is not None
        ]
        kind = kinds[0] if kinds else None
        return "several" if isinstance(kind, tuple) else "" if kind is None else str(kind.type)

    shapes = [
        f'<rect x="{left}" y="{top}" width="{width:.1f}" height="{height:.1f}" '
        'fill="currentColor" fill-opacity="0.08"/>',
        label(left - 6, top + height / 2 + 4, face(f"{first}-"), "end"),
        label(left + width + 6, top + height / 2 + 4, face(f"{first}+"), "start"),
    ]
    if request.ndim > 1:
        shapes.append(label(left + width / 2, top + height + 14, face(f"{others[0]}-")))
        shapes.append(label(left + width / 2, top - 6, face(f"{others[0]}+")))
    size = " x ".join(f"{length:g}" for length in sizes)
    shapes.append(label(left + width / 2, top + height + 34, f"{size} m"))
    if request.ndim > 2:
        ends = ", ".join(f"{others[1]}{sign}: {face(others[1] + sign)}" for sign in "-+")
        shapes.append(label(left + width / 2, top - 20, ends))
    return svg(left + width + 84, top + height + 40, shapes)


def _in_a_line(value: Any) -> str:
    """A value of a configuration as one line of YAML, shortened."""
    if isinstance(value, Mapping):
        text = ", ".join(f"{key}: {_in_a_line(part)}" for key, part in value.items())
        text = f"{{{text}}}"
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(map(_in_a_line, value))}]"
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 1]}…"


log = logging.getLogger("tetris_sim")

# Order of the sections in files that are written, and which of them are compared when a run
# is continued. `_PHYSICAL` sections suffice to build a problem.
_ORDER = (
    "schema",
    "title",
    "grid",
    "model",
    "initial",
    "boundaries",
    "time",
    "control",
    "compute",
    "output",
    "checkpoint",
    "run",
)
_PHYSICAL = ("grid", "model", "initial", "boundaries", "time")
_PHYSICS = ("schema", "grid", "model", "initial", "boundaries", "control")  # and compute.precision


class Config(Request):
    """A whole configuration that is valid in itself."""

    model: AnyModel

    def build(self, *, dt: float | None = None) -> Problem:
        """Build the problem that the configuration describes.

        Args:
            dt: the time step of a run that is continued [s].

        Raises:
            TetrisError: the problem cannot be computed, for example because the time step is
                unstable.
        """
        return self.model.build(self, dt=dt)

    def resolved_text(self) -> str:
        """The configuration as YAML in SI numbers with defaults; loading it gives an equal one."""
        values = self.resolved()
        return write_yaml({key: values[key] for key in _ORDER if key in values})

    def _repr_html_(self) -> str:
        said = self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
        return request_page(self, {key: said[key] for key in _ORDER[2:] if said.get(key)})

    def physics(self) -> dict[str, Any]:
        """The keys that are fixed when a run is continued: {"grid.shape": [512, 512], ...}."""
        # Of `compute` only the precision counts as physics; the rest may change between runs.
        values = self.resolved()
        # A section that says nothing is as if it were not there, as in files of earlier versions.
        chosen = {key: values[key] for key in _PHYSICS if values.get(key) not in (None, {})} | {
            "compute": {"precision": self.compute.precision}
        }
        return dict(_flat(chosen))

    def agreement(self) -> dict[str, Any]:
        """The keys that all ranks of a run must have alike: those of `physics`, the time, what is
        written and when, by key as there.
        """
        values = self.resolved()
        output = {key: it for key, it in values["output"].items() if key != "directory"}
        chosen = {
            "time": values["time"],
            "output": output,
            "checkpoint": values["checkpoint"],
        }
        return self.physics() | dict(_flat(chosen))

    def difference(self, other: Config) -> list[str]:
        """A sentence for each key of `physics` that differs from `other`, the earlier one."""
        new, old = self.physics(), other.physics()

        sentences = []
        # Keys of the earlier one first, each key once.
        for key in dict.fromkeys((*old, *new)):
            if key not in new:
                sentences.append(f"{key} was {old[key]}, and is not given now")
            elif key not in old:
                sentences.append(f"{key} is {new[key]}, and was not given before")
            elif new[key] != old[key]:
                sentences.append(f"{key} is {new[key]}, and was {old[key]}")

        return sentences


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        # An empty section has no keys below it, so it counts as a value.
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def load_config(
    path: Path,
    *,
    overrides: Sequence[str | Override] = (),
    environ: Mapping[str, str] | None = None,
    in_space: bool = True,
) -> Config:
    """Read and check a configuration file.

    Args:
        path: the YAML file; if it names no output directory, results go to results/<its name
            without the ending>.
        overrides: "key.path=value" each, as after --set; they take precedence over the file.
        environ: variables to use instead of the environment of this process.
        in_space: whether to read other files and check all points; the files that a run began with
            may no longer exist after it.

    Raises:
        ConfigMistakesError: the file cannot be read, or has mistakes: all of them.
    """
    path = Path(path)
    # The directory's name keeps to characters that are safe in any shell and file system.
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", path.stem) or "config"
    return _read(
        _read_text(path),
        name=str(path),
        base=path.parent,
        overrides=overrides,
        environ=environ,
        defaults=[Override("", ("output", "directory"), f"results/{stem}")],
        in_space=in_space,
    )


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            # One byte more than allowed is enough to see that the file is too large.
            content = file.read(4 * MOST_CHARACTERS + 1)
    except (OSError, ValueError) as error:
        reason = {
            "FileNotFoundError": "there is no such file",
            "IsADirectoryError": "this is a folder",
        }
        said = reason.get(type(error).__name__, getattr(error, "strerror", None) or str(error))
        message = f"{said}; a configuration file is wanted, and `init` writes one"
        raise ConfigMistakesError([Mistake((), message, SourcePosition(str(path)))]) from error

    if len(content) > 4 * MOST_CHARACTERS:  # no character has more bytes
        message = (
            f"the file is larger than {4 * MOST_CHARACTERS} bytes; a configuration is much smaller"
        )
        raise ConfigMistakesError([Mistake((), message, SourcePosition(str(path)))])

    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = "this is not text in UTF-8; a YAML file is wanted"
        raise ConfigMistakesError(
            [Mistake((), message, SourcePosition(str(path), line, 1))]
        ) from error


def read_config(
    text: str,
    *,
    name: str,
    base: Path,
    overrides: Sequence[str | Override] = (),
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Read and check a configuration from a text, for example that of a checkpoint.

    Args:
        text: YAML.
        name: name of the text, for messages.
        base: folder against which relative paths of input files are resolved.
        overrides: as for `load_config`.
        environ: as for `load_config`.

    Raises:
        ConfigMistakesError: the configuration has mistakes: all of them.
    """
    return _read(
        text,
        name=name,
        base=base,
        overrides=overrides,
        environ=environ,
        defaults=(),
        in_space=False,  # files that a run began with may no longer exist
    )


def _read(
    text: str,
    *,
    name: str,
    base: Path,
    overrides: Sequence[str | Override],
    environ: Mapping[str, str] | None,
    defaults: Sequence[Override],
    in_space: bool = True,
) -> Config:
    root, mistakes = read_yaml(text, name)
    if root is None or root.value is None:
        mistakes.append(
            Mistake(
                (),
                "this is empty; a configuration is wanted, and `init` writes one",
                SourcePosition(name, 1, 1),
            )
        )
        raise ConfigMistakesError(mistakes)

    if not isinstance(root.value, dict):
        message = "a section of keys and values is wanted at the top level"
        raise ConfigMistakesError(
            [*mistakes, Mistake((), message, SourcePosition(name, root.line, root.column))]
        )

    # Line by line for positions inside of text values.
    lines = text.splitlines()
    return _check(
        root.plain(),
        lambda finding: _place_in_text(root, finding, name, lines),
        mistakes=mistakes,
        base=base,
        overrides=overrides,
        environ=environ,
        defaults=defaults,
        in_space=in_space,
    )


def _place_in_text(root: Node, finding: Finding, name: str, lines: Sequence[str]) -> SourcePosition:
    place = root.place(finding.path, name, at_key=finding.at_key)
    if finding.character is None or place.line is None or place.column is None:
        return place
    # Text on one line without escapes stands in the file as it is, perhaps in quotes: then point at
    # the very character.
    text, line = str(root.find(finding.path)), lines[place.line - 1]
    for quote in (0, 1):
        if line.startswith(text, place.column - 1 + quote):
            return SourcePosition(name, place.line, place.column + quote + finding.character - 1)
    return place


def make_config(
    data: Mapping[str, Any],
    *,
    base: Path | None = None,
    overrides: Sequence[str | Override] = (),
    defaults: Sequence[Override] = (),
    environ: Mapping[str, str] | None = None,
) -> Config:
    """Check a configuration given as Python data.

    Args:
        data: the content of the YAML file: mappings, sequences, numbers, text.
        base: folder against which relative paths of input files are resolved; the working directory
            if not given.
        overrides: as for `load_config`.
        defaults: values for keys that the data leaves out.
        environ: as for `load_config`.

    Raises:
        ConfigMistakesError: the configuration has mistakes: all of them.
    """
    mistakes: list[Mistake] = []
    values = plain_values(data, mistakes)
    base = Path.cwd() if base is None else base
    return _check(
        values,
        lambda finding: SourcePosition(),
        mistakes=mistakes,
        base=base,
        overrides=overrides,
        environ=environ,
        defaults=defaults,
    )


def _check(
    values: dict[str, Any],
    locate: Callable[[Finding], SourcePosition],
    *,
    mistakes: list[Mistake],
    base: Path,
    overrides: Sequence[str | Override],
    environ: Mapping[str, str] | None,
    defaults: Sequence[Override],
    in_space: bool = True,
) -> Config:
    """Combine all sources and check the result.

    With `in_space`, other files are read and all points checked; without, only the text counts.
    """
    environ = os.environ if environ is None else environ
    # Overrides change the values first; defaults then fill only what is still missing.
    asked, refused = apply_overrides(values, _read_all(overrides, mistakes))
    mistakes += refused
    used = [*apply_defaults(values, [*defaults, *read_environment(environ)]), *asked]
    look_once(values)

    # Each stage adds findings instead of raising, so that all mistakes are reported together.
    findings = expand_paths(values, environ=environ, base=base)
    use_library(values, mistakes)
    sections, wrong = check_sections(Config, values)
    findings += wrong
    further = [
        *check_together(sections),
        *check_initial(sections, values),
        *check_axes(sections, values),
        *_below_absolute_zero(sections),
    ]
    # Suspicious but allowed: a warning, at the position of the override if there was one.
    for finding in mixed_units(values):
        place = _origin(finding, used) or locate(finding)
        log.warning("%s", Mistake(finding.path, finding.message, place))

    # The checks in space are expensive and need valid sections. If something else is wrong, they
    # still run on the physics, as long as no physical section is invalid but for unknown keys.
    config = None
    if not findings and not further and not mistakes:
        config = Config.model_validate(sections)
        further += check_in_space(config, config.model) if in_space else ()
    elif in_space and all(it.unknown for it in (*findings, *further) if it.path[0] in _PHYSICAL):
        further += _look_ahead(sections)
    # The names in a formula are looked for by its section and by the grid, which knows its axes.
    names = {it.path: it for it in further if UNKNOWN_NAME in it.message}
    further = [it for it in further if names.get(it.path, it) is it]
    # Blocks of floorplans are sections of their own; a mistake is where the floorplan is written.
    if isinstance(model := sections.get("model"), HeatModel):
        told = [as_in_file(model, tuple(it.path), it.message) for it in further]
        pairs = zip(further, told, strict=True)
        further = [replace(it, path=path, message=said) for it, (path, said) in pairs]
    # Sections were validated with corrected spelling; positions need the keys as written.
    findings += [replace(it, path=as_written(it.path, wrong, values)) for it in further]
    findings = _of_fields(findings, values)
    mistakes += [
        Mistake(finding.path, finding.message, _origin(finding, used) or locate(finding))
        for finding in findings
    ]

    if mistakes or config is None:
        raise ConfigMistakesError(mistakes)
    return config


_TEMPERATURES = re.compile(
    r"a temperature( difference)?( is wanted), for example [^;(]*|a temperature"
)


def _of_fields(findings: list[Finding], values: Mapping[str, Any]) -> list[Finding]:
    """Findings as they read where fields are numbers without a unit: of all models but bodies."""
    model = values.get("model")
    if not isinstance(model, Mapping) or model.get("type") not in ("pde", "stencil"):
        return findings
    return [replace(it, message=_TEMPERATURES.sub(r"a number\2", it.message)) for it in findings]


def _look_ahead(sections: Mapping[str, Any]) -> Iterable[Finding]:
    """Further mistakes that a configuration with valid physics would show next."""
    if not all(name in sections for name in _PHYSICAL):
        return
    config = Config.model_validate({name: sections[name] for name in _PHYSICAL})
    found = list(check_in_space(config, config.model))
    yield from found
    if found:
        return

    # Building is the last check: only then is the stability limit of the time step known.
    try:
        config.build()
    except UnstableStepError as error:
        said = str(error)
        of_dt = said.removeprefix("time.dt = ")
        yield Finding(("time", "dt") if of_dt != said else ("model",), of_dt)
    except TetrisError:
        return  # possibly only because of mistakes elsewhere


def _read_all(overrides: Sequence[str | Override], mistakes: list[Mistake]) -> list[Override]:
    read = []
    for override in overrides:
        try:
            read.append(read_override(override) if isinstance(override, str) else override)
        except ConfigMistakesError as error:
            mistakes += error.problems
    return read


def _origin(finding: Finding, overrides: Sequence[Override]) -> SourcePosition | None:
    """The override that a value came from, the last one if there are several."""
    # Defaults without a place, such as the name of the results directory, cannot be mistakes of the
    # user.
    for override in reversed(overrides):
        if override.place and override.explains(finding.path):
            return SourcePosition(override.place)
    return None


# Temperatures that there are not: numbers and tables by themselves, formulas where they are used.


def _below_absolute_zero(sections: Mapping[str, Any]) -> Iterator[Finding]:
    """Temperatures of a model of heat that there are not; other models have fields of any kind."""
    if getattr(sections.get("model"), "type", None) == "heat":
        kinds = keys_of(Config)
        for key, section in sections.items():
            yield from _too_cold(section, kinds[key], (key,))


def _too_cold(value: Any, kind: KeyKind, path: KeyPath) -> Iterator[Finding]:
    """Yield what lies below absolute zero in a part of a configuration, with its key path.

    Args:
        value: a section, a list, a mapping, or what a key has.
        kind: its annotation.
        path: where it is.
    """
    if isinstance(value, GaussianInitial) and value.background + value.amplitude < ABSOLUTE_ZERO:
        said = f"its middle is {value.background + value.amplitude:g} degC, below absolute zero"
        yield Finding((*path, "amplitude"), said)

    if isinstance(value, TimeTable | TemperatureTable):
        of_time = isinstance(value, TimeTable)
        coldest = [row[of_time] for row in value.table if not isinstance(row, str)]
        if min(coldest, default=0.0) < ABSOLUTE_ZERO and (not of_time or _is_temperature(kind)):
            row = coldest.index(min(coldest))
            said = f"row {row + 1} of the table, {coldest[row]:g} degC, is below absolute zero"
            yield Finding(path, said)
    elif isinstance(value, Section):
        kinds = keys_of(type(value))
        for name, field in type(value).model_fields.items():
            key = field.alias or name
            yield from _too_cold(getattr(value, name), kinds[key], (*path, key))
    elif isinstance(value, Mapping | list | tuple):
        of = get_args(kind.base)
        own = open_annotation(of[-1 if isinstance(value, Mapping) else 0]) if of else kind
        parts = value.items() if isinstance(value, Mapping) else enumerate(value)
        for place, part in parts:
            yield from _too_cold(part, own, (*path, place))
    elif isinstance(value, float) and value < ABSOLUTE_ZERO and _is_temperature(kind):
        yield Finding(path, f"{value:g} degC was found, which is below absolute zero")


def _is_temperature(kind: KeyKind) -> bool:
    own = (it.quantity if isinstance(it, Varying) else it for it in kind.metadata)
    if any(isinstance(it, Quantity) and it.unit == "degC" for it in own):
        return True
    return any(_is_temperature(open_annotation(it)) for it in kind.members)
