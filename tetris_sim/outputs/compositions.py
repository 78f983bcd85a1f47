"""Which panels make up a picture of one state, of a change, and of a whole run?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tetris_sim.outputs.drawing import Drawing, draw
from tetris_sim.outputs.labels import Caption, length_unit
from tetris_sim.outputs.sampling import Plane
from tetris_sim.outputs.sheet import (
    CHANGE_COLOURS,
    Limits,
    Panel,
    change_limits,
    field_limits,
    lay_out,
)


def draw_state(
    planes: Sequence[Plane], caption: Caption, *, moment: str, limits: Limits | None = None
) -> Drawing:
    """One state: a graph, a map, or maps of the middle planes side by side.

    Args:
        planes: what to show.
        caption: what they are.
        moment: when it is.
        limits: of the scale; those of the values if not given.
    """
    scale = field_limits(planes) if limits is None else limits
    panels = [
        Panel(plane, caption.quantity, scale, title=place)
        for plane, place in zip(planes, _places(planes), strict=True)
    ]
    return draw(lay_out([_one_bar(panels)], heading=caption.heading, moment=moment))


def draw_change(
    before: Sequence[Plane], after: Sequence[Plane], caption: Caption, *, moment: str
) -> Drawing:
    """What changed between two states, around zero: more is red, less is blue."""
    planes = difference(before, after)
    scale = field_limits(planes) if planes[0].values.ndim == 1 else change_limits(planes)
    panels = [
        Panel(plane, caption.change, scale, CHANGE_COLOURS, place)
        for plane, place in zip(planes, _places(planes), strict=True)
    ]
    return draw(lay_out([_one_bar(panels)], heading=caption.heading, moment=moment))


def draw_overview(
    before: Sequence[Plane], after: Sequence[Plane], caption: Caption, *, moments: tuple[str, str]
) -> Drawing:
    """Before, after and difference side by side, a row per plane; the first two share a scale.

    Args:
        before: the first state.
        after: the last state.
        caption: what they are.
        moments: when the two states are.
    """
    planes = difference(before, after)
    scale = field_limits([*before, *after])

    if before[0].values.ndim == 1:
        graph = Panel(
            after[0], caption.quantity, scale, name=moments[1], before=(before[0], moments[0])
        )
        below = Panel(planes[0], caption.change, field_limits(planes), CHANGE_COLOURS)
        return draw(lay_out([[graph], [below]], heading=caption.heading))

    change_scale = change_limits(planes)
    rows = []
    for first, last, differing, place in zip(before, after, planes, _places(planes), strict=True):
        titles = [_joined(word, place) for word in (*moments, "difference")]
        rows.append(
            [
                Panel(first, caption.quantity, scale, title=titles[0], bar=False),
                Panel(last, caption.quantity, scale, title=titles[1]),
                Panel(differing, caption.change, change_scale, CHANGE_COLOURS, titles[2]),
            ]
        )

    return draw(lay_out(rows, heading=caption.heading))


def difference(before: Sequence[Plane], after: Sequence[Plane]) -> list[Plane]:
    """After minus before, plane by plane."""
    return [
        replace(last, values=last.values - first.values)
        for first, last in zip(before, after, strict=True)
    ]


def _one_bar(panels: Sequence[Panel]) -> list[Panel]:
    """All panels share a scale, so the last one shows it for all."""
    return [replace(panel, bar=i == len(panels) - 1) for i, panel in enumerate(panels)]


def _places(planes: Sequence[Plane]) -> list[str]:
    """Where each plane cuts the box, in the unit of the axes; empty if it does not."""
    unit = length_unit([high - low for plane in planes for low, high in plane.bounds])
    return [
        "" if plane.place is None else f"{plane.place[0]} = {unit.text(plane.place[1])}"
        for plane in planes
    ]


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)
