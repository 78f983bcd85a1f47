"""Phrases shared by messages: descriptions of values, suggestions, sizes and lists, and small HTML
tables and drawings.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping
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
