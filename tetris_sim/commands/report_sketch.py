"""A sketch of the domain: its outline, what holds at its faces, materials and probes, as SVG."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from tetris_sim.apps.faces import find_face
from tetris_sim.commands.report_gather import Facts, material_planes
from tetris_sim.outputs.figure_layout import length_unit
from tetris_sim.outputs.sampling import Plane

_LONG, _FLAT = 300.0, 46.0  # pixels: the longer edge; a bar of one axis, and the flattest plane
_SIDE, _ABOVE = 118.0, 36.0  # pixels beside and above for the faces
_PICTURE = 240  # points along an axis of a picture of materials


def sketches(facts: Facts) -> list[str]:
    """A sketch per plane that is shown, as SVG; none if the configuration is not there."""
    grid = facts["config"].get("grid", {})
    shape = grid.get("shape")
    if not shape:
        return []
    spacing = grid.get("spacing") or [1.0] * len(shape)
    size = grid.get("size") or [n * h for n, h in zip(shape, spacing, strict=True)]
    axes = "xyz"[: len(shape)]
    planes, names = material_planes(facts["problem"])

    pairs: list[tuple[str, ...]] = [("x",)] if len(axes) == 1 else [("x", "y")]
    if len(axes) == 3:
        pairs = [("x", "y"), ("x", "z"), ("y", "z")]  # as default_cuts: normal to z, y, x
    colours = _colours(names)
    drawn = []
    for k, pair in enumerate(pairs):
        picture = _picture(planes[k], names, colours) if len(colours) > 1 else ""
        drawn.append(_sketch(facts["config"], pair, dict(zip(axes, size, strict=True)), picture))
    return drawn


def legend(facts: Facts) -> dict[str, str]:
    """The colour of each material of the sketch; empty if there is only one."""
    colours = _colours(material_planes(facts["problem"])[1])
    return colours if len(colours) > 1 else {}


def _colours(names: Sequence[str]) -> dict[str, str]:
    """A colour of its own for each material, of a map that the colour-blind can read."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    distinct = list(dict.fromkeys(names))
    shades = colormaps["cividis"](np.linspace(0.12, 0.95, max(2, len(distinct))))
    found = {name: to_hex(shade) for name, shade in zip(distinct, shades, strict=False)}
    return {name: "#ffffff00" if name == "void" else it for name, it in found.items()}


def _picture(plane: Plane, names: Sequence[str], colours: Mapping[str, str]) -> str:
    """The materials of a plane as a picture with equal pixels, as a data URI."""
    from matplotlib.colors import to_rgba
    from matplotlib.image import imsave

    ids = np.atleast_2d(plane.values).astype(int)
    bounds, edges = plane.bounds, plane.edges
    places = []
    for (low, high), ends in zip(bounds, edges, strict=True):
        n = _PICTURE
        middle = low + (np.arange(n) + 0.5) * (high - low) / n
        places.append(np.clip(np.searchsorted(ends, middle) - 1, 0, len(ends) - 2))
    rows = places[0] if len(places) == 2 else np.zeros(1, int)
    shown = ids[np.ix_(rows, places[-1])]

    table = np.array([to_rgba(colours[name]) for name in names])
    file = io.BytesIO()
    imsave(file, (table[shown] * 255).astype(np.uint8), origin="lower", format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _sketch(
    config: Mapping[str, Any], axes: tuple[str, ...], size: Mapping[str, float], picture: str
) -> str:
    lengths = [size[axis] for axis in axes]
    scale = _LONG / max(lengths)
    width = max(_FLAT, lengths[0] * scale)
    height = _FLAT if len(axes) == 1 else max(_FLAT, lengths[1] * scale)
    unit = length_unit(lengths)
    faces = config.get("boundaries") or {}

    parts = [
        f'<rect x="{_SIDE}" y="{_ABOVE}" width="{width:.1f}" height="{height:.1f}" class="body"/>'
    ]
    if picture:
        parts.append(
            f'<image href="{picture}" x="{_SIDE}" y="{_ABOVE}" width="{width:.1f}" '
            f'height="{height:.1f}" preserveAspectRatio="none" style="image-rendering:pixelated"/>'
        )
        parts.append(parts[0].replace('class="body"', 'class="edge"'))
    right, bottom = _SIDE + width, _ABOVE + height
    middle_x, middle_y = (_SIDE + right) / 2, (_ABOVE + bottom) / 2
    spots = [
        (axes[0] + "-", _SIDE - 8, middle_y, "end"),
        (axes[0] + "+", right + 8, middle_y, "start"),
    ]
    if len(axes) == 2:
        spots += [
            (axes[1] + "+", middle_x, _ABOVE - 22, "middle"),
            (axes[1] + "-", middle_x, bottom + 18, "middle"),
        ]

    for face, x, y, anchor in spots:
        key = find_face(faces, face)
        said = face_words(faces[key]) if key else ["?"]
        shown = [f"{face} {said[0]}", *said[1:2]]
        lines = "".join(
            f'<tspan x="{x:.1f}" dy="{1.2 * (k > 0):.1f}em">{escape(line)}</tspan>'
            for k, line in enumerate(shown)
        )
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{lines}</text>')

    for probe in (config.get("output") or {}).get("probes") or ():
        at = dict(zip("xyz", probe["at"], strict=False))
        x = _SIDE + at[axes[0]] / lengths[0] * width
        y = middle_y if len(axes) == 1 else bottom - at[axes[1]] / lengths[1] * height
        name = escape(str(probe.get("name", "")))
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" class="probe"><title>{name}</title></circle>'
        )

    measures = " x ".join(f"{axis}: {unit.text(size[axis])}" for axis in axes)
    total_w, total_h = right + _SIDE, bottom + 52
    parts.append(
        f'<text x="{middle_x:.1f}" y="{total_h - 4:.1f}" text-anchor="middle" class="dim">'
        f"{escape(measures)}</text>"
    )
    return (
        f'<svg viewBox="0 0 {total_w:.0f} {total_h:.0f}" role="img" '
        f'aria-label="sketch of the domain">{"".join(parts)}</svg>'
    )


def face_words(section: Any) -> list[str]:
    """What holds at a face, the kind first: ["robin", "h 25, ambient 20"]."""
    if isinstance(section, list):
        return [f"{len(section)} parts", "; ".join(it.get("type", "") for it in section)]
    kind = str(section.get("type", ""))
    if kind == "neumann" and section.get("flux") in (0, 0.0, None):
        return ["insulated"]
    rest = {key: it for key, it in section.items() if key not in ("type", "where") and it}
    return [kind, ", ".join(f"{key} {_short(it)}" for key, it in rest.items())]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = "over time" if isinstance(value, dict) else str(value)
    return text if len(text) <= 22 else text[:20] + "…"
