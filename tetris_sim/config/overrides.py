"""Values from outside the configuration file: --set, command-line flags, environment variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tetris_sim.config.errors import ConfigMistakesError, KeyPath, Mistake, SourcePosition
from tetris_sim.config.sections.schema import split_devices
from tetris_sim.config.yaml import read_yaml
from tetris_sim.support.wording import describe

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
