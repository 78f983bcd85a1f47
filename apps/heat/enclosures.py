"""Enclosures: voids whose surfaces exchange grey diffuse radiation.

Faces of cells around a void form patches. A S is their exchange areas, A_i F_ij with the view
factor F_ij from patch i to j, which are found once:

    of two shells of one axis    F_12 = 1 from the inner one, and what it leaves the outer one sees
    of two lines in the plane    crossed strings, exactly; and
    of two rectangles in space   the integral over both, in closed form (J. R. Ehlert, T. F. Smith,
                                 J. Thermophys. Heat Transfer 7 (1993) 173), where the box around
                                 both is all void
    of others in the plane       rays between all corners in sight: exact from a point, and Gauss'
                                 rule over the points of a face
    of others in space           a fixed set of rays of low discrepancy for each patch

Then the areas are made symmetric, and scaled so that every patch sees no more and no less than its
own area (R. Sinkhorn's balancing in its symmetric form), to rounding.
"""

from __future__ import annotations

import itertools
import time as clock
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.domain import KeyPath
from tetris_sim.config.sections.quantities import PositiveLength, Section
from tetris_sim.errors import ConfigError
from tetris_sim.model.conduction import Conduction, Numbers
from tetris_sim.model.grid import Grid
from tetris_sim.model.radiation import Enclosure, Enclosures

if TYPE_CHECKING:
    from tetris_sim.apps.heat.model import HeatModel
    from tetris_sim.apps.heat.survey import GridScan
    from tetris_sim.config.sections.schema import Request

_ALONG = 16  # patches along the longest side of a void, if their size is not given
_MOST_PATCHES = 12_000  # whose exchange areas are kept: 1.2 GB
_MOST_RAYS = 1 << 18  # that are on their way at once
_RAYS = 13  # powers of two of rays per patch in space
_BALANCED = 1e-14  # of an area: how far from it the sum of what a patch sees may be
_ROUNDS = 20_000
_POINTS, _SHARES = np.polynomial.legendre.leggauss(3)  # of a face in the plane
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class VoidSection(Section):
    """A void whose surfaces radiate to each other, grey and diffuse, each with the emissivity of
    its material.
    """

    radiates: bool = True
    patch: PositiveLength | None = None
    """About how wide patches of one radiosity are [m]; a sixteenth of the longest side of the
    void if not given, and never less than a cell.
    """


def enclosure_mistakes(model: HeatModel, request: Request) -> Iterator[tuple[KeyPath, str]]:
    """Yield emissivities that nothing uses, and what enclosures cannot go with, with key paths."""
    numbers = [n for n, it in enumerate(model.regions) if radiates(it.void)]
    for name, material in model.materials.items():
        if getattr(material, "emissivity", None) is not None and not numbers:
            told = "no void radiates; let one have void: {radiates: true}, or leave this out"
            yield ("model", "materials", name, "emissivity"), told
    if not numbers:
        return

    path: KeyPath = ("model", "regions", numbers[0], "void")
    grid = request.grid
    if grid.system.is_curved and request.ndim > 1:
        told = "around an axis only voids between shells, of one axis, radiate; let it be true"
        yield path, told
    if request.time.scheme == "spectral":
        told = "what radiates has no eigenvectors; take explicit, implicit or steady"
        yield ("time", "scheme"), told
    if request.compute.precision == "float16":
        told = "bodies with enclosures are equations, in float64 or float32; not in float16"
        yield ("compute", "precision"), told


def radiates(void: bool | VoidSection) -> bool:
    """Whether the surfaces of a void exchange radiation."""
    return isinstance(void, VoidSection) and void.radiates


@dataclass(frozen=True, eq=False)
class _Faces:
    """Faces of cells around a void.

    Attributes:
        inside: cells of the void, (n, ndim).
        solid: cells of materials, (n, ndim).
        axis: of the normal, (n,).
        up: whether the material lies above, (n,).
        area: [m^2].
    """

    inside: Places
    solid: Places
    axis: Places
    up: Mask
    area: Numbers


def find_enclosures(
    model: HeatModel, found: GridScan, body: Conduction, periodic: Sequence[bool], joules: float
) -> Enclosures | None:
    """Return the enclosures of a body with their exchange areas; None if no void radiates.

    Args:
        model: with its regions.
        found: the body.
        body: its conduction.
        periodic: per axis.
        joules: what a heat of a cell is in watts, see `read_lumps`.

    Raises:
        ConfigError: a void is open, or a material beside it has no emissivity.
    """
    if not any(radiates(region.void) for region in model.regions):
        return None
    from scipy.ndimage import label

    grid = found.painting.grid
    whole = tuple((0, n) for n in grid.shape)
    radiating, made = np.zeros(grid.shape, np.bool_), list[Enclosure]()
    numbers = np.full(grid.shape, -1)
    for number, region in enumerate(model.regions):
        if radiates(region.void):
            own = found.painting.seen(number, whole)
            radiating |= own
            numbers[own] = number
    if not radiating.any():
        return None
    if found.enthalpy is not None:
        first = f"model.regions.{int(numbers[radiating].min())}.void"
        msg = (
            f"{first}: a body with enclosures has constant properties, and here something melts, "
            "radiates to a fluid or a gap, or depends on temperature; give numbers"
        )
        raise ConfigError(msg)

    # A void of several rooms has an enclosure for each of them.
    ids = body.medium.ids(whole)
    solid = np.isfinite(body.medium.capacity)[ids]
    labels, count = label(radiating)
    for which in range(1, count + 1):
        cells = labels == which
        number = int(numbers[cells].min())
        key, void = f"model.regions.{number}.void", model.regions[number].void
        assert isinstance(void, VoidSection)
        began = clock.perf_counter()
        faces = _faces_of(grid, cells, solid, periodic, key)
        material = ids[tuple(faces.solid.T)]
        patch = _patches(grid, cells, faces, material, void.patch)
        n = int(patch.max()) + 1
        if n > _MOST_PATCHES:
            msg = f"{key}.patch: {n:,} patches are more than {_MOST_PATCHES:,}; let them be larger"
            raise ConfigError(msg)
        emissivity = _emissivities(found, material, patch, n, key)
        areas = np.asarray(np.bincount(patch, faces.area, n), np.float64)
        seen = balanced(_areas_seen(grid, cells, faces, patch, n), areas)
        name = model.regions[number].name or f"region {number + 1}"
        flat = np.ravel_multi_index(tuple(faces.solid.T), grid.shape)
        half, seconds = _halves(found, faces, material), clock.perf_counter() - began
        surfaces = flat, patch, faces.area, half
        made.append(Enclosure(name, *surfaces, areas, emissivity, seen, seconds))
    return Enclosures(tuple(made), body.rates(1.0, whole), joules)


def _emissivities(found: GridScan, material: Any, patch: Places, n: int, key: str) -> Numbers:
    """Of patches; raises where a material has none."""
    emissivity, first = np.empty(n), np.unique(patch, return_index=True)[1]
    for number, face in enumerate(first):
        substance = found.fillings[int(material[face])].substance
        assert substance is not None
        if substance.emissivity is None:
            msg = (
                f"{key}: {substance.name} bounds it and has no emissivity; give it in the section "
                "of the material in model.materials"
            )
            raise ConfigError(msg)
        emissivity[number] = substance.emissivity
    return emissivity


def _halves(found: GridScan, faces: _Faces, material: Any) -> Numbers:
    """Resistances from the centres of cells to their faces [m^2 K/W]."""
    grid, result = found.painting.grid, np.empty(len(faces.axis))
    for axis in range(grid.ndim):
        here = faces.axis == axis
        k = np.array(
            [
                1.0 if it.substance is None else it.substance.conductivity[grid.ndim - 1 - axis]
                for it in found.fillings
            ]
        )
        result[here] = grid.widths(axis)[faces.solid[here, axis]] / (2 * k[material[here]])
    return result


def _faces_of(grid: Grid, cells: Mask, solid: Mask, periodic: Sequence[bool], key: str) -> _Faces:
    """The faces around a void; raises where it is open."""
    parts = list[tuple[Places, Places, int, bool, Numbers]]()
    for axis, up in itertools.product(range(grid.ndim), (False, True)):
        n, name = grid.shape[axis], grid.axis_names[axis]
        places = np.argwhere(cells)
        beside = places.copy()
        beside[:, axis] += 1 if up else -1
        outside = (beside[:, axis] < 0) | (beside[:, axis] >= n)

        # Where r = 0 there is no face.
        core = name == "r" and not up and grid.ends(axis)[0] == 0
        if outside.any() and not core:
            there = f"{name}{'+' if up else '-'}"
            how = "is periodic there" if periodic[axis] else f"reaches the face {there}"
            msg = (
                f"{key}: it {how}, and only closed voids radiate; put a layer of a material there, "
                "a black one at a fixed temperature for open surroundings"
            )
            raise ConfigError(msg)
        places, beside = places[~outside], beside[~outside]
        # Between two cells of the void there is no surface.
        wall = ~cells[tuple(beside.T)]
        places, beside = places[wall], beside[wall]
        if not solid[tuple(beside.T)].all():
            msg = f"{key}: it touches a fluid or a void that does not radiate; let both be one void"
            raise ConfigError(msg)
        lower = places if up else beside
        parts.append((places, beside, axis, up, grid.areas_at(axis, lower)))
    return _Faces(
        np.concatenate([it[0] for it in parts]),
        np.concatenate([it[1] for it in parts]),
        np.concatenate([np.full(len(it[0]), it[2]) for it in parts]),
        np.concatenate([np.full(len(it[0]), it[3]) for it in parts]),
        np.concatenate([it[4] for it in parts]),
    )


def _patches(grid: Grid, cells: Mask, faces: _Faces, material: Any, size: float | None) -> Places:
    """The number of the patch of each face: those of one direction and material in a square."""
    rows = np.arange(len(faces.axis))
    low, high = (it(np.argwhere(cells), axis=0) for it in (np.min, np.max))
    ends = [grid.ends(axis) for axis in range(grid.ndim)]
    sides = [e[b + 1] - e[a] for e, a, b in zip(ends, low, high, strict=True)]
    size = size or max(sides) / _ALONG

    # What differs in any of these has a radiosity of its own.
    keys = [faces.axis, faces.up.astype(np.int64), material.astype(np.int64)]
    for axis in range(grid.ndim):
        # Squares of the same size, as many as fit the whole side.
        count = max(1, round(sides[axis] / size))
        at = grid.positions(axis, faces.inside[:, axis]) - ends[axis][low[axis]]
        keys.append(np.floor(at / sides[axis] * count).astype(np.int64))
    group = np.unique(np.stack(keys), axis=1, return_inverse=True)[1].reshape(-1)

    # Both sides of a thin wall are no surface of one temperature; the steps of stairs may be.
    plane = faces.inside[rows, faces.axis]
    order = np.lexsort((plane, group))
    apart = (np.diff(group[order]) != 0) | (np.diff(plane[order]) > 1)
    number = np.empty(len(order), np.int64)
    number[order] = np.concatenate([[0], np.cumsum(apart)])
    return number


def _areas_seen(grid: Grid, cells: Mask, faces: _Faces, patch: Places, n: int) -> Numbers:
    """Exchange areas of patches, (n, n), as they are found."""
    if grid.ndim == 1:
        return _of_shells(faces, patch, n)
    seen, known = _in_sight(grid, cells, faces, patch, n)
    if known.all():
        return seen
    return np.where(known, seen, _by_rays(grid, cells, faces, patch, n))


def _of_shells(faces: _Faces, patch: Places, n: int) -> Numbers:
    """Of two parallel walls, or shells around each other: the inner one sees nothing of itself."""
    areas = np.bincount(patch, faces.area, n)
    if n == 1:
        return np.asarray(areas[:, None])
    # Of the larger one, what the smaller one leaves free sees the larger one itself.
    smaller = areas.min()
    seen = np.full((2, 2), smaller)
    np.fill_diagonal(seen, areas - smaller)
    return seen


def _in_sight(
    grid: Grid, cells: Mask, faces: _Faces, patch: Places, n: int
) -> tuple[Numbers, Mask]:
    """Exchange areas of straight lines or rectangles with nothing but the void around both, and
    which pairs these are.
    """
    spans, places = np.empty((2, n, grid.ndim, 2))
    spans[..., 0], spans[..., 1] = np.inf, -np.inf
    places[..., 0], places[..., 1] = np.inf, -np.inf
    for axis in range(grid.ndim):
        ends, at = grid.ends(axis), faces.inside[:, axis]
        normal = faces.axis == axis
        first = ends[np.where(normal & faces.up, at + 1, at)]
        last = ends[np.where(normal & ~faces.up, at, at + 1)]
        for found, low, high in ((spans, first, last), (places, at, at + 1)):
            np.minimum.at(found[:, axis, 0], patch, low)
            np.maximum.at(found[:, axis, 1], patch, high)
    corners = places.astype(np.int64)
    widths = spans[..., 1] - spans[..., 0]
    flat = (widths == 0).sum(axis=1) == 1
    area = np.where(widths == 0, 1.0, widths).prod(axis=1)
    flat &= np.isclose(area, np.bincount(patch, faces.area, n), rtol=1e-9, atol=0)

    # Cells of the void below each corner, to count those of any box.
    below = np.pad(cells, [(1, 0)] * grid.ndim).astype(np.int64)
    for axis in range(grid.ndim):
        below = below.cumsum(axis)
    axis_of, up_of = np.empty(n, np.int64), np.empty(n, np.bool_)
    axis_of[patch], up_of[patch] = faces.axis, faces.up
    seen, known = np.zeros((n, n)), np.zeros((n, n), np.bool_)
    of_pair = _strings if grid.ndim == 2 else _rectangles
    for i in range(n):
        low = np.minimum(corners[i, :, 0], corners[:, :, 0])
        high = np.maximum(corners[i, :, 1], corners[:, :, 1])
        count = np.zeros(n, np.int64)
        for ends_of in itertools.product((0, 1), repeat=grid.ndim):
            at = np.where(ends_of, high, low)
            count += (-1) ** (grid.ndim - sum(ends_of)) * below[tuple(at.T)]
        known[i] = flat[i] & flat & (count == (high - low).prod(axis=1))
        other = known[i] & ((axis_of != axis_of[i]) | (up_of != up_of[i]))
        for axis in range(grid.ndim):
            these = np.flatnonzero(other & (axis_of == axis))
            if len(these):
                seen[i, these] = of_pair(spans[i], int(axis_of[i]), spans[these], axis)
    return seen, known


def _strings(one: Numbers, axis: int, others: Numbers, other: int) -> Numbers:
    """Crossed strings less uncrossed ones, halved, from a line to others [m]."""
    a, b = one[:, 0], one[:, 1]
    c, d = others[..., 0], others[..., 1]

    def to(end: Numbers, ends: Numbers) -> Numbers:
        return np.asarray(np.hypot(*(ends - end).T))

    del axis, other  # either order of the ends of a line gives the same, but for the sign
    return np.asarray(abs(to(a, c) + to(b, d) - to(a, d) - to(b, c)) / 2)


def _rectangles(one: Numbers, axis: int, others: Numbers, other: int) -> Numbers:
    """Exchange areas of a rectangle with others [m^2]."""
    # Ends of one side along each axis less those of the other, (n, 2, 2, 2, 2).
    if axis == other:
        u, v = (k for k in range(3) if k != axis)
        z2 = ((others[:, axis, 0] - one[axis, 0]) ** 2)[:, None, None, None, None]
        x = one[u][None, :, None, None, None] - others[:, u][:, None, :, None, None]
        y = one[v][None, None, None, :, None] - others[:, v][:, None, None, None, :]
        far_x, far_y = np.sqrt(x * x + z2), np.sqrt(y * y + z2)
        terms = y * far_x * np.arctan2(y, far_x) + x * far_y * np.arctan2(x, far_y)
        terms -= z2 / 2 * np.log(x * x + y * y + z2)
    else:
        # Along the common edge, and from it.
        (u,) = (k for k in range(3) if k not in (axis, other))
        edge, beyond = others[:, other, 0], one[axis, 0]
        x = (one[other][None, :] - edge[:, None])[:, :, None, None, None]
        z = (others[:, axis] - beyond)[:, None, :, None, None]
        y = one[u][None, None, None, :, None] - others[:, u][:, None, None, None, :]
        away = x * x + z * z
        far = np.sqrt(away)
        near = away + y * y
        terms = y * far * np.arctan2(y, far)
        terms = terms - (away - y * y) / 4 * np.log(np.where(near > 0, near, 1.0))

    # Between both ends of all four sides, those further out count as positive.
    signs = np.array([-1.0, 1.0])
    for _ in range(4):
        terms = terms @ signs
    return np.asarray(abs(terms) / (2 * np.pi))


def _by_rays(grid: Grid, cells: Mask, faces: _Faces, patch: Places, n: int) -> Numbers:
    """Of voids of any shape."""
    number = np.full((grid.ndim, 2, *grid.shape), -1)
    number[(faces.axis, faces.up.astype(np.int64), *faces.inside.T)] = patch
    seen = np.zeros((n, n))
    make = _rays_in_plane if grid.ndim == 2 else _rays_in_space
    for owner, origin, start, direction, weight in make(grid, faces, patch, n):
        for part in range(0, len(owner), _MOST_RAYS):
            here = slice(part, part + _MOST_RAYS)
            hit = _march(grid, cells, number, origin[here], start[here], direction[here])
            np.add.at(seen, (owner[here], hit), weight[here])
    return seen


def _march(
    grid: Grid, cells: Mask, number: Any, origin: Numbers, start: Places, direction: Numbers
) -> Places:
    """Return the patches that rays meet first."""
    ndim, size = grid.ndim, cells.size
    ends = [grid.ends(axis) for axis in range(ndim)]
    steps = np.array([int(np.prod(grid.shape[axis + 1 :])) for axis in range(ndim)])
    walls = number.reshape(-1)
    found, ray = np.full(len(origin), -1), np.arange(len(origin))
    at, ahead = [*start.T.copy()], [*(direction.T > 0)]
    flat = start @ steps
    with np.errstate(divide="ignore", invalid="ignore"):
        slow = [1 / d for d in direction.T]
        due = [
            np.where(d == 0, np.inf, (e[i + u] - o) * w)
            for e, i, u, o, d, w in zip(ends, at, ahead, origin.T, direction.T, slow, strict=True)
        ]
    from_ = [*origin.T]

    while len(ray):
        # Through which face each ray leaves its cell.
        axis_of, first = np.zeros(len(ray), np.int64), due[0]
        for axis in range(1, ndim):
            sooner = due[axis] < first
            axis_of[sooner] = axis
            first = np.where(sooner, due[axis], first)
        up = np.choose(axis_of, ahead)
        wall = walls[(2 * axis_of + up) * size + flat]
        # Beyond the face lies the next cell of the void, or the ray has met a wall.
        ended = wall >= 0
        found[ray[ended]] = wall[ended]
        flat = flat + np.where(up, steps[axis_of], -steps[axis_of])
        for axis in range(ndim):
            here = np.flatnonzero((axis_of == axis) & ~ended)
            on, w = ahead[axis][here], slow[axis][here]
            at[axis][here] = i = at[axis][here] + np.where(on, 1, -1)
            due[axis][here] = (ends[axis][i + on] - from_[axis][here]) * w
        # Rays that have ended leave the arrays, so that rounds become shorter.
        if ended.any():
            going = ~ended
            ray, flat = ray[going], flat[going]
            at, ahead, slow, due, from_ = (
                [it[going] for it in arrays] for arrays in (at, ahead, slow, due, from_)
            )
    return found


_Rays = tuple[Places, Numbers, Places, Numbers, Numbers]


def _rays_in_plane(grid: Grid, faces: _Faces, patch: Places, n: int) -> Iterator[_Rays]:
    """Rays from points of each face into the middles between all corners."""
    ends = [grid.ends(axis) for axis in range(2)]
    rows = np.arange(len(patch))
    along = 1 - faces.axis
    corners: dict[tuple[int, int], set[tuple[int, int, bool]]] = {}
    nodes = faces.inside.copy()
    nodes[rows, faces.axis] += faces.up
    for shift in (0, 1):
        at = nodes.copy()
        at[rows, along] += shift
        for k, (i, j) in enumerate(at.tolist()):
            side = int(patch[k]), int(faces.axis[k]), bool(faces.up[k])
            corners.setdefault((i, j), set()).add(side)
    # Where one patch follows another, what a point sees may change.
    turning = np.array([place for place, sides in corners.items() if len(sides) > 1])
    xy = np.stack([ends[0][turning[:, 0]], ends[1][turning[:, 1]]], axis=1)

    for k in range(len(patch)):
        axis, other = int(faces.axis[k]), int(along[k])
        inward = -1.0 if faces.up[k] else 1.0
        first, last = ends[other][faces.inside[k, other]], ends[other][faces.inside[k, other] + 1]
        for point, share in zip(_POINTS, _SHARES, strict=True):
            origin = np.empty(2)
            origin[axis] = ends[axis][nodes[k, axis]]
            origin[other] = (first + last + point * (last - first)) / 2
            # By sines, as every interval of them is worth the same to a diffuse surface.
            to = xy - origin
            ahead = to[:, axis] * inward >= 0
            sines = to[ahead, other] / np.hypot(*to[ahead].T)
            sines = np.unique(np.concatenate([[-1.0, 1.0], sines]))
            middle = (sines[1:] + sines[:-1]) / 2
            direction = np.empty((len(middle), 2))
            direction[:, other], direction[:, axis] = middle, inward * np.sqrt(1 - middle**2)
            weight = np.diff(sines) / 2 * share / 2 * faces.area[k]
            yield (
                np.full(len(middle), patch[k]),
                np.broadcast_to(origin, direction.shape),
                np.broadcast_to(faces.inside[k], direction.shape),
                direction,
                weight,
            )


def _rays_in_space(grid: Grid, faces: _Faces, patch: Places, n: int) -> Iterator[_Rays]:
    """The same rays for each patch, of cosines in proportion to how often they occur."""
    from scipy.stats import qmc

    drawn = qmc.Sobol(5, seed=1).random_base2(_RAYS)
    ends = [grid.ends(axis) for axis in range(3)]
    order = np.argsort(patch, kind="stable")
    bounds = np.searchsorted(patch[order], np.arange(n + 1))
    for p in range(n):
        own = order[bounds[p] : bounds[p + 1]]
        total = np.cumsum(faces.area[own])
        face = own[
            np.searchsorted(total, drawn[:, 0] * total[-1], side="right").clip(max=len(own) - 1)
        ]
        axis = int(faces.axis[own[0]])
        inward = -1.0 if faces.up[own[0]] else 1.0
        u, v = (k for k in range(3) if k != axis)
        start = faces.inside[face]
        origin, direction = np.empty((2, len(drawn), 3))
        origin[:, axis] = ends[axis][start[:, axis] + bool(faces.up[own[0]])]
        for k, column in ((u, 1), (v, 2)):
            low, high = ends[k][start[:, k]], ends[k][start[:, k] + 1]
            origin[:, k] = low + drawn[:, column] * (high - low)
        # Points of a disc of radius 1, which lie below directions that obey the cosine.
        radius, angle = np.sqrt(drawn[:, 3]), 2 * np.pi * drawn[:, 4]
        direction[:, u], direction[:, v] = radius * np.cos(angle), radius * np.sin(angle)
        direction[:, axis] = inward * np.sqrt(np.maximum(1 - drawn[:, 3], 1e-300))
        weight = np.full(len(drawn), total[-1] / len(drawn))
        yield np.full(len(drawn), p), origin, start, direction, weight


def balanced(seen: Numbers, areas: Numbers) -> Numbers:
    """Return exchange areas made symmetric, whose rows add up to the areas of patches.

    Args:
        seen: A_i F_ij as found, (n, n) [m^2].
        areas: of patches, (n,) [m^2].

    Raises:
        ConfigError: that is impossible.
    """
    # As many rays begin on each patch, so the smaller one of two knows better what they share.
    trust = 1 / areas[:, None]
    both = (trust * seen + trust.T * seen.T) / (trust + trust.T)
    scale = np.ones(len(areas))
    for _ in range(_ROUNDS):
        sums = scale * (both @ scale)
        if abs(sums / areas - 1).max() <= _BALANCED * len(areas) ** 0.5:
            return np.asarray(both * np.multiply.outer(scale, scale))
        scale *= np.sqrt(areas / sums)
    msg = "model.regions: view factors of a void cannot be made reciprocal; take smaller patches"
    raise ConfigError(msg)
