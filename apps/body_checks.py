"""What does not fit between the sections of a body, as far as it shows without a look at points."""

from __future__ import annotations

import contextlib
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tetris_sim.apps.body import BeamSource, ContactSection, Place, RegionSection, VolumeSource
from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.faces import condition_of, find_face, patches
from tetris_sim.apps.materials import MATERIALS
from tetris_sim.config.sections.conditions import DirichletFace, FixedFace, PeriodicFace
from tetris_sim.config.sections.schema import Request
from tetris_sim.model.formula import ExpressionError, compile_expression
from tetris_sim.model.grid import AXIS_NAMES
from tetris_sim.support.wording import listed, suggestion

if TYPE_CHECKING:
    from tetris_sim.apps.thermal import HeatModel

Mistakes = Iterator[tuple[KeyPath, str]]


def body_problems(model: HeatModel, request: Request) -> Mistakes:
    """Names that nobody knows, axes that are not there, keys that contradict each other."""
    axes = AXIS_NAMES[: request.ndim]
    known = {*model.materials, *MATERIALS}
    if model.materials and not model.regions and len(model.materials) > 1:
        yield (
            ("model", "materials"),
            f"{len(model.materials)} materials and no regions were found; say in model.regions "
            "where each is",
        )

    for number, region in enumerate(model.regions):
        yield from _region(region, ("model", "regions", number), known, axes)
    names = Counter(it.name for it in model.regions if it.name is not None)
    for number, region in enumerate(model.regions):
        if region.name is not None and names[region.name] > 1:
            yield ("model", "regions", number, "name"), f"two regions are named {region.name!r}"

    yield from _contacts(model.contacts, known)
    for number, source in enumerate(model.sources):
        path: KeyPath = ("model", "sources", number)
        if isinstance(source, BeamSource):
            yield from _beam(source, path, request)
        else:
            yield from _volume(source, path, model)
            yield from _place(source, path, axes)
    yield from _formulas(model, request, axes)


def _known(name: str, known: Iterable[str], path: KeyPath) -> Mistakes:
    names = list(known)
    if name not in names:
        yield (
            path,
            f"{name!r} is no material{suggestion(name, names)}; it is wanted as a key of "
            "model.materials, or a name of the table",
        )


def _region(
    region: RegionSection, path: KeyPath, known: Iterable[str], axes: Sequence[str]
) -> Mistakes:
    if region.material is not None:
        yield from _known(region.material, known, (*path, "material"))
    for label, name in (region.materials or {}).items():
        yield from _known(name, known, (*path, "materials", str(label)))
    yield from _place(region, path, axes)


def _place(place: Place, path: KeyPath, axes: Sequence[str]) -> Mistakes:
    for axis in set(AXIS_NAMES) - set(axes):
        if place.box is not None and getattr(place.box, axis) is not None:
            yield (*path, "box", axis), f"the grid has the axes {listed(axes, 'and')} only"
    if place.where is not None:
        try:
            compile_expression(place.where, axes)
        except ExpressionError as error:
            yield (*path, "where"), str(error)


def _contacts(contacts: Sequence[ContactSection], known: Iterable[str]) -> Mistakes:
    for number, contact in enumerate(contacts):
        path: KeyPath = ("model", "contacts", number, "between")
        for place, name in enumerate(contact.between):
            yield from _known(name, known, (*path, place))
        if contact.between[0] == contact.between[1]:
            yield path, f"{contact.between[0]} touches itself everywhere; name two materials"


def _volume(source: VolumeSource, path: KeyPath, model: HeatModel) -> Mistakes:
    if source.material is not None:
        yield from _known(source.material, {*model.materials, *MATERIALS}, (*path, "material"))
    names = [region.name for region in model.regions if region.name is not None]
    if source.region is not None and source.region not in names:
        meant = suggestion(source.region, names)
        yield (
            (*path, "region"),
            f"no region is named {source.region!r}{meant}; give one of model.regions that name",
        )


def _beam(beam: BeamSource, path: KeyPath, request: Request) -> Mistakes:
    axes = AXIS_NAMES[: request.ndim]
    if len(beam.face) != 2 or beam.face[0] not in axes:
        faces = listed([axis + sign for axis in axes for sign in "-+"])
        yield (*path, "face"), f"{beam.face!r} is no face of this grid; {faces} is wanted"
        return

    for axis in AXIS_NAMES:
        if getattr(beam.path, axis) is not None and (axis not in axes or axis == beam.face[0]):
            yield (*path, "path", axis), f"the beam does not move along {axis} on {beam.face}"
    if find_face(request.boundaries, beam.face) is None:
        return
    _, condition = condition_of(request.boundaries, beam.face)
    sections = [section for _, section in patches({beam.face: condition})]
    if all(isinstance(it, DirichletFace | FixedFace | PeriodicFace) for it in sections):
        yield (
            (*path, "face"),
            f"{beam.face} is {listed([it.type for it in sections], 'and')}, so a beam heats "
            "nothing there; neumann, robin or radiation is wanted",
        )


def _formulas(model: HeatModel, request: Request, axes: Sequence[str]) -> Mistakes:
    """Formulas with a coordinate that the grid does not have."""
    found: list[tuple[KeyPath, Any]] = []
    for path, section in patches(request.boundaries):
        found += [
            (("boundaries", *path, name), getattr(section, name, None))
            for name in ("value", "flux", "h", "ambient", "where")
        ]
    found += [
        (("model", "sources", n, "density"), getattr(source, "density", None))
        for n, source in enumerate(model.sources)
    ]
    for path, text in found:
        if isinstance(text, str):
            names = [*axes] if path[-1] == "where" else [*axes, "t"]
            try:
                compile_expression(text, names)
            except ExpressionError as error:
                yield path, str(error)


def stamps(paths: Iterable[str]) -> tuple[tuple[str, int, int], ...]:
    """What tells whether files have changed: path, time and length of each that is there."""
    found = []
    for path in paths:
        with contextlib.suppress(OSError, ValueError):  # most texts are no paths
            status = os.stat(path)
            if stat.S_ISREG(status.st_mode):
                found.append((path, status.st_mtime_ns, status.st_size))
    return tuple(found)


def texts_in(values: Any) -> Iterator[str]:
    """Every text in plain data, among them all paths of files."""
    if isinstance(values, str):
        yield values
    elif isinstance(values, Mapping):
        for part in values.values():
            yield from texts_in(part)
    elif isinstance(values, list | tuple):
        for part in values:
            yield from texts_in(part)
