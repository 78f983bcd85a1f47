"""Phrases that messages share: what is there, what may have been meant, and how much it is."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
from html import escape
from numbers import Real

# Tables and small drawings as HTML, for notebooks: plain, readable on light and on dark.

_CELL = "text-align:left;vertical-align:top;padding:2px 10px 2px 0"
_TITLE = "font-weight:bold;padding-bottom:4px"


def table(title: str, rows: Iterable[tuple[str, str]], *, picture: str = "") -> str:
    """A table of names and values, with a picture (HTML) to its right.

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
    """Sentences one below the other."""
    return "".join(f'<div style="padding-bottom:3px">{escape(text)}</div>' for text in sentences)


def svg(width: float, height: float, shapes: Iterable[str]) -> str:
    """A drawing of SVG elements, whose lines and letters have the colour of the text around."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" fill="none" stroke="currentColor" '
        f'font-family="sans-serif" font-size="11">{"".join(shapes)}</svg>'
    )


def label(x: float, y: float, text: str, anchor: str = "middle") -> str:
    """Letters in a drawing; the anchor is start, middle or end."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="currentColor" stroke="none">'
        f"{escape(text)}</text>"
    )


_LONGEST = 80  # characters of the user's text that a message repeats


def describe(value: object) -> str:
    """What was found, short whatever the value is.

    >>> describe("15 mm"), describe(None), describe([1, 2]), describe(True)
    ("'15 mm'", 'nothing', 'a list of 2', 'true')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(_shortened(value))

    if isinstance(value, Mapping):
        return "a section of keys and values" if value else "an empty section"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}" if value else "an empty list"
    if isinstance(value, int) and abs(value) >= 10**_LONGEST:
        return "a whole number of very many digits"

    return (
        _shortened(str(value))
        if isinstance(value, Real)
        else f"an object of type {type(value).__name__}"
    )


def printable(text: str) -> str:
    r"""A text of somebody else without what would command a terminal.

    >>> printable("red \x1b[31m")
    'red ?[31m'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def first_line(error: BaseException) -> str:
    """The first line of what an error says; its kind if it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def suggestion(word: object, allowed: Collection[str]) -> str:
    """The end of a message that offers the allowed word most like `word`; empty if none is like it.

    >>> suggestion("t_ned", ["t_end", "steps"])
    " (did you mean 't_end'?)"
    """
    meant = likely(word, allowed)
    return f" (did you mean {meant!r}?)" if meant else ""


def likely(word: object, allowed: Collection[str]) -> str:
    """The allowed word most like `word`, which is none of them; empty if none is like it."""
    if not isinstance(word, str) or len(word) > _LONGEST:
        return ""
    lower = {name.lower(): name for name in allowed}
    close = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return lower[close[0]] if close and lower[close[0]] != word else ""


def gib(n_bytes: float) -> str:
    """A number of bytes for people.

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
        if round(n_bytes) < 1024:  # what would be written as 1024 of a unit is one of the next
            return f"{n_bytes:.{3 if n_bytes < 1000 else 4}g} {unit}"
    return f"{n_bytes / 1024:.4g} {largest}"


def count_threads(threads: int) -> str:
    """A number of threads for people."""
    return "1 thread" if threads == 1 else f"{threads} threads"


def listed(words: Collection[str], last: str = "or") -> str:
    """The words as a person lists them.

    >>> listed(["cpu", "gpu", "auto"])
    'cpu, gpu or auto'
    """
    *head, tail = words
    return f"{', '.join(head)} {last} {tail}" if head else tail


def spread(low: float, high: float, text: Callable[[float], str]) -> str:
    """From one number to another, or the one that both are to readers.

    >>> spread(0.5, 2.0, str), spread(2.0, 2.0, str)
    ('0.5 to 2.0', '2.0')
    """
    begin, end = text(low), text(high)
    return begin if begin == end else f"{begin} to {end}"
