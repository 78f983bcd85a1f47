"""A configuration as a notebook shows it: what was said, and the box with its faces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tetris_sim.schema import Request
from tetris_sim.support.wording import label, svg, table

_LONGEST_LINE = 160  # characters of a value


def request_page(request: Request, said: Mapping[str, Any]) -> str:
    """HTML.

    Args:
        request: the configuration.
        said: its sections as they were given, by key.
    """
    rows = [(key, _in_a_line(value)) for key, value in said.items()]
    return table(request.title or "Configuration", rows, picture=_drawing(request))


def _drawing(request: Request) -> str:
    """The box seen along its last axis, with what holds at its faces."""
    sizes = request.grid.size or tuple(
        n * h
        for n, h in zip(
            request.grid.shape, request.grid.spacing or (1.0,) * request.ndim, strict=True
        )
    )
    longest = max(sizes[:2])
    width = max(40.0, 180.0 * sizes[0] / longest)
    height = max(24.0, 180.0 * sizes[1] / longest) if request.ndim > 1 else 24.0
    left, top = 84.0, 34.0

    def face(name: str) -> str:
        kinds = [
            found
            for key in (name, name[0], "*")
            if (found := request.boundaries.get(key)) is not None
        ]
        kind = kinds[0] if kinds else None
        return "several" if isinstance(kind, tuple) else "" if kind is None else str(kind.type)

    shapes = [
        f'<rect x="{left}" y="{top}" width="{width:.1f}" height="{height:.1f}" '
        'fill="currentColor" fill-opacity="0.08"/>',
        label(left - 6, top + height / 2 + 4, face("x-"), "end"),
        label(left + width + 6, top + height / 2 + 4, face("x+"), "start"),
    ]
    if request.ndim > 1:
        shapes.append(label(left + width / 2, top + height + 14, face("y-")))
        shapes.append(label(left + width / 2, top - 6, face("y+")))
    size = " x ".join(f"{length:g}" for length in sizes)
    shapes.append(label(left + width / 2, top + height + 34, f"{size} m"))
    if request.ndim > 2:
        shapes.append(label(left + width / 2, top - 20, f"z-: {face('z-')}, z+: {face('z+')}"))
    return svg(left + width + 84, top + height + 40, shapes)


def _in_a_line(value: Any) -> str:
    """A value of a configuration as YAML would have it on one line, shortened."""
    if isinstance(value, Mapping):
        text = ", ".join(f"{key}: {_in_a_line(part)}" for key, part in value.items())
        text = f"{{{text}}}"
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(map(_in_a_line, value))}]"
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 1]}…"
