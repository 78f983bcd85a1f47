"""Where a configuration is wrong, and how all of its mistakes are told at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tetris_sim.errors import ConfigError

KeyPath = tuple[str | int, ...]  # ("output", "probes", 0, "at")

# Nobody reads more, and a file that is no configuration at all may hold thousands.
_MOST_SHOWN = 100


@dataclass(frozen=True)
class SourcePosition:
    """Where a value was written.

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
        return ":".join(
            str(part) for part in (self.source, self.line, self.column) if part is not None
        )


@dataclass(frozen=True)
class Finding:
    """Something wrong, before it is known where it was written.

    Attributes:
        path: the key it is about.
        message: what was found, what is allowed.
        at_key: whether the key itself is wrong, rather than its value.
        character: for text: which character of it is meant, counted from 1.
        unknown: whether it is about a key that does not exist.
        meant: the key that was probably meant instead; empty if none is like it.
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
        path: the key it is about; empty for the whole configuration.
        message: what was found, what is allowed.
        place: where it was written.
    """

    path: KeyPath
    message: str
    place: SourcePosition = SourcePosition()

    def __str__(self) -> str:
        return ": ".join(part for part in (str(self.place), self.key, self.message) if part)

    @property
    def key(self) -> str:
        """The path as it is written after --set: "output.probes.0.at"."""
        return ".".join(map(str, self.path))

    def as_json(self) -> dict[str, Any]:
        """The mistake as plain values, for --json."""
        return {"key": self.key, "message": self.message, **asdict(self.place)}


class ConfigMistakesError(ConfigError):
    """A configuration that cannot be used; the message lists every mistake, one a line.

    Attributes:
        problems: the mistakes, in the order of the file.
    """

    def __init__(self, problems: Iterable[Mistake]) -> None:
        self.problems = tuple(sorted(problems, key=_order))
        lines = [str(problem) for problem in self.problems[:_MOST_SHOWN]]
        if len(self.problems) > _MOST_SHOWN:
            lines.append(f"and {len(self.problems) - _MOST_SHOWN} more mistakes")
        super().__init__("\n".join(lines))


def _order(mistake: Mistake) -> tuple[bool, int, int]:
    place = mistake.place
    return place.line is None, place.line or 0, place.column or 0
