"""Mistakes in a configuration, their positions in the source, and the error that lists them all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tetris_sim.errors import ConfigError

KeyPath = tuple[str | int, ...]  # ("output", "probes", 0, "at")

# A longer list helps no reader, and a file that is not a configuration may hold thousands.
_MOST_SHOWN = 100


@dataclass(frozen=True)
class SourcePosition:
    """Position at which a value was written.

    Attributes:
        source: a file, "--set time.t_end=2", the name of an environment variable; empty for values
            from Python.
        line: counted from 1; None if the source has no lines.
        column: in characters, counted from 1.
    """

    source: str = ""
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        # Compiler style, "case.yaml:12:5"; unknown parts are left out.
        return ":".join(
            str(part) for part in (self.source, self.line, self.column) if part is not None
        )


@dataclass(frozen=True)
class Finding:
    """A mistake found by a check, before its position in the source is known.

    Attributes:
        path: the key concerned.
        message: what was found and what is allowed.
        at_key: whether the key itself is wrong, rather than its value.
        character: for text: the offending character, counted from 1.
        unknown: whether the key does not exist in the schema.
        meant: the existing key that was probably meant; empty if none is similar.
    """

    path: KeyPath
    message: str
    at_key: bool = False
    character: int | None = None
    unknown: bool = False
    meant: str = ""


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong in a configuration.

    Attributes:
        path: the key concerned; empty for the whole configuration.
        message: what was found and what is allowed.
        place: where the value was written.
    """

    path: KeyPath
    message: str
    place: SourcePosition = SourcePosition()

    def __str__(self) -> str:
        # A mistake of the whole configuration has no key, and one in Python data no position.
        return ": ".join(part for part in (str(self.place), self.key, self.message) if part)

    @property
    def key(self) -> str:
        """The path as written after --set: "output.probes.0.at"."""
        return ".".join(map(str, self.path))

    def as_json(self) -> dict[str, Any]:
        """The mistake as plain values, for --json."""
        return {"key": self.key, "message": self.message, **asdict(self.place)}


class ConfigMistakesError(ConfigError):
    """A configuration that cannot be used; the message lists its mistakes, one per line.

    Attributes:
        problems: the mistakes, in the order of the file.
    """

    def __init__(self, problems: Iterable[Mistake]) -> None:
        # File order; mistakes without a line (from --set or the environment) come last.
        self.problems = tuple(sorted(problems, key=_order))
        lines = [str(problem) for problem in self.problems[:_MOST_SHOWN]]
        if len(self.problems) > _MOST_SHOWN:
            lines.append(f"and {len(self.problems) - _MOST_SHOWN} more mistakes")
        super().__init__("\n".join(lines))


def _order(mistake: Mistake) -> tuple[bool, int, int]:
    place = mistake.place
    return place.line is None, place.line or 0, place.column or 0
