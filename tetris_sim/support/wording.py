"""Phrases shared by messages: descriptions of values, suggestions, sizes, times and lists, small
HTML tables and drawings, and the clock of a run's phases.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from html import escape
from numbers import Real

# HTML tables and small drawings for notebooks: plain, and readable on light and dark backgrounds.

_CELL = "text-align:left;vertical-align:top;padding:2px 10px 2px 0"
_TITLE = "font-weight:bold;padding-bottom:4px"


def table(title: str, rows: Iterable[tuple[str, str]], *, picture: str = "") -> str:
    """An HTML table of names and values, with a picture (HTML) to its right.

    >>> "&lt;b&gt;" in table("<b>", [("size", "15 mm")])
    True
    """
    lines = "".join(
        f'<tr><th style="{_CELL};font-weight:normal;opacity:0.65">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return (
        '<div style="display:flex;flex-wrap:wrap;gap:24px;align-items:flex-start">'
        f'<div><div style="{_TITLE}">{escape(title)}</div>'
        f'<table style="border-collapse:collapse;margin:0">{lines}</table></div>'
        f"<div>{picture}</div></div>"
    )


def listing(sentences: Iterable[str]) -> str:
    """Sentences as HTML, one below the other."""
    return "".join(f'<div style="padding-bottom:3px">{escape(text)}</div>' for text in sentences)


def svg(width: float, height: float, shapes: Iterable[str]) -> str:
    """An SVG drawing, whose lines and text take the colour of the surrounding text."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" fill="none" stroke="currentColor" '
        f'font-family="sans-serif" font-size="11">{"".join(shapes)}</svg>'
    )


def label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    """Text in a drawing; the anchor is "start", "middle" or "end"."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor" stroke="none">'
        f"{escape(text)}</text>"
    )


_LONGEST = 80  # characters of the user's text that a message repeats


def describe(value: object) -> str:
    """A short description of any value.

    >>> describe("15 mm"), describe(None), describe([1, 2]), describe(True)
    ("'15 mm'", 'nothing', 'a list of 2', 'true')
    """
    if value is None:
        return "nothing"
    # Before numbers, since a bool is an int in Python.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(_shortened(value))

    if isinstance(value, Mapping):
        return "a section of keys and values" if value else "an empty section"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    # Large integers would fill the message, and Python refuses to convert those with thousands of
    # digits.
    if isinstance(value, int) and abs(value) >= 10**_LONGEST:
        return "a whole number of very many digits"

    return (
        _shortened(str(value))
        if isinstance(value, Real)
        else f"an object of type {type(value).__name__}"
    )


def printable(text: str) -> str:
    r"""A text from an untrusted source, without characters that control a terminal.

    >>> printable("red \x1b[31m")
    'red ?[31m'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def printable_lines(text: str) -> str:
    """Several lines, of which some were written by others; see `printable`."""
    return "\n".join(map(printable, text.splitlines()))


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type if the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def suggestion(word: object, allowed: Collection[str]) -> str:
    """The end of a message that suggests the allowed word most like `word`; empty if none is
    similar.

    >>> suggestion("t_ned", ["t_end", "steps"])
    " (did you mean 't_end'?)"
    """
    meant = likely(word, allowed)
    return f" (did you mean {meant!r}?)" if meant else ""


def likely(word: object, allowed: Collection[str]) -> str:
    """The allowed word most like `word`, which is not allowed itself; empty if none is similar."""
    if not isinstance(word, str) or len(word) > _LONGEST:
        return ""
    # Compared in small letters, so that `Copper` finds copper; a word that differs in nothing else
    # is suggested too.
    lower = {name.lower(): name for name in allowed}
    close = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return lower[close[0]] if close and lower[close[0]] != word else ""


def gib(n_bytes: float) -> str:
    """A number of bytes for the user.

    >>> gib(1536), gib(3 << 40), gib(1000), gib((1 << 20) - 1)
    ('1.5 KiB', '3 TiB', '1000 bytes', '1 MiB')
    """
    if n_bytes < 1000:
        return f"{n_bytes:.3g} bytes"
    if n_bytes < 1024:
        return f"{n_bytes:.0f} bytes"

    *smaller, largest = "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"
    for unit in smaller:
        n_bytes /= 1024
        if round(n_bytes) < 1024:  # values that would read as 1024 get the next unit
            return f"{n_bytes:.{3 if n_bytes < 1000 else 4}g} {unit}"
    return f"{n_bytes / 1024:.4g} {largest}"


def count_threads(threads: int) -> str:
    """A number of threads for the user."""
    return "1 thread" if threads == 1 else f"{threads} threads"


def listed(words: Collection[str], last: str = "or") -> str:
    """The words as a list in a sentence.

    >>> listed(["cpu", "gpu", "auto"])
    'cpu, gpu or auto'
    """
    *head, tail = words
    return f"{', '.join(head)} {last} {tail}" if head else tail


def spread(low: float, high: float, text: Callable[[float], str]) -> str:
    """A range of two numbers, or one number if both read the same.

    >>> spread(0.5, 2.0, str), spread(2.0, 2.0, str)
    ('0.5 to 2.0', '2.0')
    """
    begin, end = text(low), text(high)
    return begin if begin == end else f"{begin} to {end}"


PHASES = ("plan", "prepare", "initial", "compute", "exchange", "check", "output", "checkpoint")


class PhaseClock:
    """A clock that adds up the wall time of each phase; phases do not nest."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.seconds = dict.fromkeys(PHASES, 0.0)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the `with` block to the phase `name`, one of `PHASES`."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - begin

    @property
    def elapsed(self) -> float:
        """Wall time since the clock was created [s]."""
        return time.perf_counter() - self.begin


_DAY = 86400.0
_YEAR = 365.25 * _DAY


def format_time(seconds: float) -> str:
    """A simulated time in a suitable unit.

    >>> format_time(0.01922), format_time(0.0), format_time(86400.0), format_time(1.9e6)
    ('19.22 ms', '0 s', '86400 s', '21.99 days')
    """
    # Units as people say them: days for long simulated times, seconds up to that, then SI prefixes.
    if 2 * _DAY <= seconds < math.inf:
        return f"{seconds / _DAY:.4g} days"
    if seconds >= 1e4:
        return f"{seconds:.5g} s"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")):
        if seconds >= factor:
            return f"{seconds / factor:.4g} {unit}"
    return f"{seconds:.4g} s"


def format_duration(seconds: float) -> str:
    """A wall time for the user.

    >>> format_duration(3.2), format_duration(75), format_duration(7384)
    ('3.2 s', '1:15 min', '2:03:04 h')
    >>> format_duration(1916665), format_duration(1e9)
    ('22 days', '32 years')
    """
    if not math.isfinite(seconds):
        return f"{seconds:g} s"
    # Long durations in years or days, one decimal below ten units.
    for limit, length, unit in ((2 * _YEAR, _YEAR, "years"), (2 * _DAY, _DAY, "days")):
        if seconds >= limit:
            return f"{round(seconds / length, 1 if seconds < 10 * length else None):,} {unit}"

    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h"
