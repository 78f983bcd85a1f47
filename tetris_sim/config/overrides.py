"""Values from outside the configuration file: --set, command-line flags, environment variables,
variables in paths, and ranges of values.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.initial_file import texts_in
from tetris_sim.config.sections.schema import Request, split_devices
from tetris_sim.config.yaml import read_yaml
from tetris_sim.errors import (
    ConfigError,
    ConfigMistakesError,
    Finding,
    KeyPath,
    Mistake,
    SourcePosition,
)
from tetris_sim.support.files import read_given
from tetris_sim.support.wording import describe

Numbers = npt.NDArray[np.float64]
_MOST_BYTES = 1 << 24  # of a file of materials

# Environment variables and the keys for which they supply defaults.
VARIABLES: dict[str, KeyPath] = {
    "TETRIS_SIM_DEVICES": ("compute", "devices"),
    "TETRIS_SIM_METHOD": ("compute", "method"),
    "TETRIS_SIM_THREADS": ("compute", "threads"),
}


@dataclass(frozen=True)
class Override:
    """A value for a key that comes from outside the file.

    Attributes:
        place: how messages name its origin: "--set time.t_end=2".
        path: the key; parts that are digits may be list indices.
        value: plain data.
        made: number of leading parts of the path that existed before it was applied.
    """

    place: str
    path: KeyPath
    value: Any
    made: int = 0

    def explains(self, path: KeyPath) -> bool:
        """Whether the existence or value of whatever lies under `path` is due to this override."""
        if path[: len(self.path)] == self.path:
            return True
        # Sections on the way that did not exist before were created by it.
        return self.made < len(path) and self.path[: len(path)] == path


def read_override(text: str) -> Override:
    """Parse the text after --set, "time.t_end=2 s"; the value is YAML.

    Raises:
        ConfigMistakesError: the text is not of this form.
    """
    place = f"--set {text if len(text) <= 80 else text[:77] + '...'}"
    key, equals, value = text.partition("=")
    parts = tuple(key.strip().split("."))
    if not equals or not all(parts):
        raise ConfigMistakesError(
            [Mistake((), "key=value is wanted, for example time.t_end=2", SourcePosition(place))]
        )

    try:
        root, mistakes = read_yaml(value, place)
    except ConfigMistakesError as error:
        root, mistakes = None, [*error.problems]
    if mistakes:  # lines and columns inside one flag are of no use
        raise ConfigMistakesError(
            Mistake(parts, m.message, SourcePosition(place)) for m in mistakes
        )
    return Override(place, parts, None if root is None else root.plain())


def read_environment(environ: Mapping[str, str]) -> Iterable[Override]:
    """The overrides that environment variables request; empty variables are ignored."""
    for name, path in VARIABLES.items():
        text = environ.get(name, "").strip()
        if text:
            yield Override(name, path, split_devices(text) if path[-1] == "devices" else text)


def apply_overrides(
    values: dict[str, Any], overrides: Iterable[Override]
) -> tuple[list[Override], list[Mistake]]:
    """Apply the overrides to `values`, in place.

    Returns:
        The overrides that were applied, with list indices as numbers in their paths; and a mistake
        for each of the others.
    """
    applied, mistakes = [], []
    for override in overrides:
        try:
            path, made = _set(values, override.path, override.value)
            applied.append(replace(override, path=path, made=made))
        except ValueError as error:
            mistakes.append(Mistake(override.path, str(error), SourcePosition(override.place)))
    return applied, mistakes


def apply_defaults(values: dict[str, Any], defaults: Iterable[Override]) -> list[Override]:
    """Fill in keys that `values` lacks; returns the defaults that were used."""
    absent = []
    for default in defaults:
        section, key = values.get(str(default.path[0])), default.path[1]
        # A section that is present but no mapping is a mistake, which the checks report later.
        if section is None or (isinstance(section, dict) and section.get(key) is None):
            absent.append(default)
    return apply_overrides(values, absent)[0]


def look_once(values: Mapping[str, Any]) -> None:
    """Give outputs of a steady state that say no `every` its only moment; changes the values.

    A steady state has one record, which "1 step" finds; of a run over time `every` must be given.
    """
    time, output = values.get("time"), values.get("output")
    if not (isinstance(time, dict) and time.get("scheme") == "steady" and isinstance(output, dict)):
        return

    for key in ("fields", "parts", "probes", "statistics"):
        # `fields` and `statistics` are sections, `parts` and `probes` lists of them.
        found = output.get(key)
        for section in found if isinstance(found, list) else [found]:
            # What is no section is a mistake, which the checks report later.
            if isinstance(section, dict) and not section.get("at" if key == "fields" else "every"):
                section.setdefault("every", "1 step")


def _set(values: Any, path: KeyPath, value: Any) -> tuple[KeyPath, int]:
    """Store `value` under `path`, whose list indices may still be text.

    Returns:
        The path with its indices as numbers, and how many of its leading parts already existed.
    """
    done: list[str | int] = []
    there = len(path)
    for part in path:
        last = len(done) == len(path) - 1
        key: Any = part
        if isinstance(values, list):
            # An index one past the end appends an entry, but only as the last part of a path.
            key = _index(part, len(values), extend=last)
            values += [None] * (key == len(values))
        elif not isinstance(values, dict):
            msg = f"{'.'.join(map(str, done))} is {describe(values)}, which has no keys"
            raise ValueError(msg)
        elif values.get(part) is None:
            # Missing sections are created on the way, so that --set works without them in the file.
            there = min(there, len(done))
            values[part] = None if last else {}

        if last:
            values[key] = value
        values = values[key]
        done.append(key)

    return tuple(done), there


def _index(part: str | int, length: int, *, extend: bool) -> int:
    # Ten digits and more would not be an index, and int() of very long text is slow.
    number = int(part) if str(part).isdecimal() and len(str(part)) < 10 else -1
    if not 0 <= number < length + extend:
        msg = (
            f"{describe(part)} is not the number of an entry; the list has {length}, counted from 0"
        )
        raise ValueError(msg)
    return number


# Ranges in which keys are varied, those of `fit`.

_NUMBER = re.compile(r"\s*([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(.*?)\s*")


@dataclass(frozen=True)
class FitRange:
    """A key that is varied, and between which ends.

    Attributes:
        key: as after --set.
        low: end of the range, in `unit`.
        high: the other end.
        unit: as written; empty for SI numbers.
    """

    key: str
    low: float
    high: float
    unit: str = ""

    def at(self, share: float) -> float:
        """The value at a share of the way, by equal factors where both ends are above 0."""
        return float(self.all_at(np.array(share)))

    def all_at(self, shares: Numbers) -> Numbers:
        """The same of an array of shares."""
        if self.low > 0:
            return np.asarray(self.low * (self.high / self.low) ** shares)
        return np.asarray(self.low + (self.high - self.low) * shares)

    def slopes(self, shares: Numbers) -> Numbers:
        """Their derivatives by the shares."""
        if self.low > 0:
            return self.all_at(shares) * math.log(self.high / self.low)
        return np.full(np.shape(shares), self.high - self.low)

    def shares(self, values: Numbers) -> Numbers:
        """The shares of the way at which values are reached; of others the nearest ends."""
        inside = np.clip(values, self.low, self.high)
        if self.low > 0:
            return np.asarray(np.log(inside / self.low) / math.log(self.high / self.low))
        return np.asarray((inside - self.low) / (self.high - self.low))

    def written(self, share: float) -> Any:
        """The same as a configuration takes it."""
        value = float(f"{self.at(share):.12g}")
        return f"{value!r} {self.unit}" if self.unit else value


def read_ranges(vary: Mapping[str, Any]) -> list[FitRange]:
    """The parameters of a fit.

    >>> read_ranges({"materials.tim.conductivity": "1:10", "time.dt": "1 ms:2 ms"})[0].key
    'model.materials.tim.conductivity'

    Args:
        vary: by key the ends of its range, (low, high) or "low:high", with units or without.

    Raises:
        ConfigError: a range is none.
    """
    found = []
    for key, given in vary.items():
        ends = given.split(":") if isinstance(given, str) else list(given)
        parts = [_NUMBER.fullmatch(str(end)) for end in ends]
        numbers = [(float(it[1]), it[2]) for it in parts if it is not None]

        # The first end is the lower one, so that a slip of the pen is no other range.
        if len(ends) != 2 or len(numbers) != 2 or not numbers[0][0] < numbers[1][0]:
            msg = f"--vary {key}={given}: LOW:HIGH is wanted, two numbers, the lower one first"
            raise ConfigError(msg)
        (low, unit), (high, other) = numbers
        if unit and unit != other:
            msg = f"--vary {key}={given}: both ends want the same unit"
            raise ConfigError(msg)
        # `materials.tim.conductivity` is short for that of the model.
        whole = key if key.split(".")[0] in Request.model_fields else f"model.{key}"
        found.append(FitRange(key if key.startswith("model.") else whole, low, high, other))
    if not found:
        msg = "--vary: a key and its range are wanted, such as boundaries.z+.h=5:50"
        raise ConfigError(msg)
    return found


# Variables in paths.

_VARIABLE = re.compile(r"\$\{([^}]*)\}")
# Keys that hold paths; "*" is any key or list entry. All but the last name input files.
PATHS: tuple[KeyPath, ...] = (
    ("model", "constants", "*", "path"),
    ("initial", "path"),
    ("initial", "from"),
    ("model", "fields", "*", "initial", "path"),
    ("model", "fields", "*", "initial", "from"),
    ("model", "fields", "*", "initial_velocity", "path"),
    ("model", "fields", "*", "initial_velocity", "from"),
    ("boundaries", "*", "*", "table"),
    ("boundaries", "*", "*", "file"),
    ("boundaries", "*", "*", "*", "table"),
    ("boundaries", "*", "*", "*", "file"),
    ("model", "library"),
    ("model", "regions", "*", "labels"),
    ("model", "regions", "*", "labels", "*"),
    ("model", "regions", "*", "floorplan"),
    ("model", "sources", "*", "floorplan"),
    ("model", "materials", "*", "*", "table"),
    ("model", "materials", "*", "*", "file"),
    ("model", "sources", "*", "over_time"),
    ("model", "sources", "*", "*", "table"),
    ("model", "sources", "*", "*", "file"),
    ("model", "sources", "*", "path", "*", "table"),
    ("model", "sources", "*", "path", "*", "file"),
    ("output", "directory"),
)


def expand_paths(
    values: Mapping[str, Any], *, environ: Mapping[str, str], base: Path
) -> list[Finding]:
    """Replace ${VAR} in paths, and resolve relative paths of input files against `base`.

    Args:
        values: plain values by key; changed in place.
        environ: the variables.
        base: the folder of the configuration file.

    Returns:
        Findings about paths that could not be expanded.
    """
    findings: list[Finding] = []
    for pattern in PATHS:
        for section, path in _matches(values, pattern):
            expanded, trouble = _expand(section[path[-1]], environ)
            if trouble is not None:
                findings.append(Finding(path, trouble))
            # Results go below the working directory, so `output.directory` stays relative.
            elif pattern != PATHS[-1]:
                expanded = os.path.normpath(base.absolute() / expanded)
            section[path[-1]] = expanded
    return findings


def _matches(values: Any, pattern: KeyPath, path: KeyPath = ()) -> Iterator[tuple[Any, KeyPath]]:
    """The texts that match a pattern of `PATHS`: the container of each, and its path."""
    first, *rest = pattern
    keys: Iterable[Any] = range(len(values)) if isinstance(values, list) else ()
    if isinstance(values, dict):
        keys = list(values)
    for key in keys:
        if first not in ("*", key):
            continue
        if rest:
            yield from _matches(values[key], tuple(rest), (*path, key))
        elif isinstance(values[key], str):
            yield values, (*path, key)


def _expand(text: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
    # Only paths are expanded: elsewhere ${...} would be a part of a formula or a name.
    unset = [name for name in _VARIABLE.findall(text) if name not in environ]
    if unset:
        return (
            text,
            f"the environment variable {unset[0]} is not set; set it, or write the path out",
        )

    expanded = _VARIABLE.sub(lambda match: environ[match[1]], text)
    if "\0" in expanded or not expanded:
        return text, "a path is wanted; it is not empty and holds no null character"
    # The result is written to checkpoints and read again, where it must mean the same.
    if _VARIABLE.search(expanded):
        return (
            text,
            (
                "the value of a variable holds ${...} itself, which is not expanded again; write "
                "the path out"
            ),
        )
    return expanded, None


# Materials from a file of their own: the ones that are used become those of the configuration, so
# that a run, its results and its checkpoints say all that they were made with.

_NUMBERS = ("conductivity", "density", "specific_heat")  # of a body of one material


def read_library(path: Path) -> tuple[dict[str, tuple[dict[str, Any], str]], list[Mistake]]:
    """The materials of a YAML file by name, each with its source, and what is wrong with the file.

    Args:
        path: of keys that are names, each with the keys of a material and `source`, a text.
    """
    # Positions of mistakes are those in this file.
    name = str(path)
    try:
        text = read_given(path, _MOST_BYTES).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        message = f"it cannot be read ({error}); a YAML file of materials is wanted"
        return {}, [Mistake((), message, SourcePosition(name))]

    root, mistakes = read_yaml(text, name)
    entries = {} if root is None else root.plain()
    if not isinstance(entries, dict):
        message = "materials by name are wanted, each with conductivity, density, specific_heat"
        return {}, [*mistakes, Mistake((), message, SourcePosition(name, 1, 1))]
    found = dict[str, tuple[dict[str, Any], str]]()
    for material, entry in entries.items():
        source = entry.pop("source", None) if isinstance(entry, dict) else None
        if root is not None and not (isinstance(source, str) and source.strip()):
            message = f"{material}: a section with source is wanted, which says where it is from"
            mistakes.append(Mistake((), message, root.place((material,), name)))
        else:
            found[material] = entry, str(source)
    return found, mistakes


def use_library(values: dict[str, Any], mistakes: list[Mistake]) -> None:
    """Put the materials of `model.library` that the model names into `model.materials`.

    Args:
        values: plain values by key; changed in place.
        mistakes: a list to which mistakes are appended.
    """
    model = values.get("model")
    if not isinstance(model, dict) or not isinstance(model.get("library"), str):
        return
    found, wrong = read_library(Path(model.pop("library")))
    mistakes += wrong
    library = {name: entry for name, (entry, _) in found.items()}
    own = model.setdefault("materials", {})
    if not isinstance(own, dict):
        return

    # Names of the file come before those of the table; numbers of the configuration before both.
    for name, given in own.items():
        if isinstance(given, str) and given in library:
            own[name] = dict(library[given])
        elif isinstance(given, dict) and given.get("material") in library:
            own[name] = {**library[given.pop("material")], **given}
    one = model.get("material")
    if isinstance(one, str) and one in library and not model.get("regions"):
        del model["material"]
        if any(key in model for key in _NUMBERS):
            model |= {key: it for key, it in library[one].items() if key not in model}
        else:
            model["regions"] = [{"material": one}]
    for name in {*texts_in(model)} & library.keys():
        own.setdefault(name, dict(library[name]))
    if not own:
        del model["materials"]
