"""Tables and small drawings as HTML, for notebooks: plain, readable on light and on dark."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

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
