"""Electric heating: the potential between electrodes, and the heat of the current in each cell.

Charge flows through faces of cells as heat does: with electric conductivities s and half cells in
series, i = A (p_a - p_b) / (d_a / (2 s_a) + d_b / (2 s_b)), and what flows into a cell leaves it.
The heat i^2 R of every half cell is that of its cell, so all cells together get what the
electrodes give, to the rounding of the solution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from tetris_sim.apps.domain import KeyPath
from tetris_sim.config.sections.conditions import FaceName
from tetris_sim.config.sections.quantities import (
    Quantity,
    Section,
)
from tetris_sim.errors import ConfigError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.exchange import Heated
from tetris_sim.model.formula import ExpressionError, compile_expression, evaluate
from tetris_sim.model.grid import Grid
from tetris_sim.support.wording import listed, suggestion

if TYPE_CHECKING:
    from tetris_sim.apps.heat.model import HeatModel
    from tetris_sim.apps.heat.survey import GridScan
    from tetris_sim.config.sections.schema import Request

Voltage = Annotated[float, Quantity("a voltage", "V", ("5 V", "60 mV"))]
Current = Annotated[float, Quantity("an electric current", "A", ("10 A",))]
ElectricConductivity = Annotated[
    float, Quantity("an electric conductivity", "S/m", ("58e6 S/m",), "positive")
]
_FACTORISED = {1: 1 << 24, 2: 400_000, 3: 40_000}  # unknowns, by the number of axes
_LEFT = 1e-12  # of the right-hand side: what iterations may leave
_LOST = 1e-8  # of the power: what electrodes may give more than cells get


class ElectrodeSection(Section):
    """A metal on a face of the box, or on a part of it, of one potential."""

    face: FaceName
    """A face of the box."""
    where: str | None = None
    """A condition of x, y and z: which part of the face; all of it if not given."""
    voltage: Voltage | None = None
    """Its potential [V]."""
    current: Current | None = None
    """Instead: what flows into the body [A], in 2D per metre of depth, in 1D per square metre."""

    @model_validator(mode="after")
    def _one_drive(self) -> ElectrodeSection:
        if (self.voltage is None) == (self.current is None):
            msg = "give either voltage or current"
            raise ValueError(msg)
        return self


class ElectricSection(Section):
    """Currents through the body, which heat it."""

    conductivities: Annotated[dict[str, ElectricConductivity], Field(min_length=1)]
    """Electric conductivity by material [S/m]; other materials insulate."""
    electrodes: Annotated[tuple[ElectrodeSection, ...], Field(min_length=2)]
    """Where current comes in and goes out; one of them has a voltage."""


def electric_mistakes(model: HeatModel, request: Request) -> Iterator[tuple[KeyPath, str]]:
    """Yield names that are nothing, and what currents cannot go with, with key paths."""
    if (electric := model.electric) is None:
        return
    path: KeyPath = ("model", "electric")
    known = {*model.substances()}
    for name in electric.conductivities:
        if name not in known:
            there = listed([*known], "and")
            told = f"{name!r} is no material{suggestion(name, known)}; known are {there}"
            yield (*path, "conductivities", name), told

    # Formulas of place know the axes of the grid only.
    faces = [axis + sign for axis in request.grid.names for sign in "-+"]
    for number, it in enumerate(electric.electrodes):
        own: KeyPath = (*path, "electrodes", number)
        if it.face not in faces:
            yield (*own, "face"), f"{it.face!r} is no face; {listed(faces)} is wanted"
        if it.where is not None:
            try:
                compile_expression(it.where, request.grid.names)
            except ExpressionError as error:
                yield (*own, "where"), str(error)

    # Two potentials whose currents are given differ by any constant.
    if all(it.voltage is None for it in electric.electrodes):
        told = "every electrode has a current, so potentials are known but for a constant; "
        yield (*path, "electrodes"), f"{told}let one have voltage: 0 V"
    if request.time.scheme == "spectral":
        told = "currents heat differently from place to place; take explicit, implicit or steady"
        yield ("time", "scheme"), told
    if request.compute.precision == "float16":
        told = "bodies with currents are equations, in float64 or float32; not in float16"
        yield ("compute", "precision"), told


@dataclass(frozen=True, eq=False)
class Currents:
    """The currents through a body.

    Attributes:
        potential: of the cells, of the grid's shape; NaN where no current can be [V].
        heat: of the cells [W].
        electrodes: potential [V] and current into the body [A] of each.
    """

    potential: Numbers
    heat: Numbers
    electrodes: tuple[tuple[float, float], ...]

    def heated(self, joules: float) -> Heated:
        """Return the heat of cells in a unit of so many watts."""
        return Heated("currents", self.heat / joules)

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what electrodes have, and what they give."""
        told = [f"{v:.6g} V and {i:.6g} A" for v, i in self.electrodes]
        power = f"{float(self.heat.sum()):.6g} W"
        return (f"electrodes have {listed(told, 'and')}; the currents heat by {power}",)


def find_currents(model: HeatModel, found: GridScan) -> Currents | None:
    """Return the currents through a body; None if it has no electrodes.

    Args:
        model: with its section.
        found: the body.

    Raises:
        ConfigError: nothing conducts at an electrode, or the potential is not found.
    """
    if (electric := model.electric) is None:
        return None
    if found.enthalpy is not None:
        msg = (
            "model.electric: a body with currents has constant properties, and here something "
            "melts, radiates to a fluid or a gap, or depends on temperature; give numbers"
        )
        raise ConfigError(msg)

    from scipy.sparse import coo_matrix

    # What has no electric conductivity insulates: voids, fluids and other materials.
    grid = found.painting.grid
    whole, n = tuple((0, m) for m in grid.shape), grid.n_points
    given = electric.conductivities
    by_id = np.array(
        [
            0.0 if it.substance is None else given.get(it.substance.name, 0.0)
            for it in found.fillings
        ]
    )
    conductivity = by_id[found.medium().ids(whole)]
    with np.errstate(divide="ignore"):
        halves = [
            np.broadcast_to(grid.distances(axis, whole), grid.shape) / (2 * conductivity)
            for axis in range(grid.ndim)
        ]

    # Pairs of unknowns with the conductances between them, and the resistance of either side.
    flat, pairs = np.arange(n).reshape(grid.shape), list[tuple[Any, Any, Any, Any]]()
    for axis, half in enumerate(halves):
        low, high = _sides(axis)
        area = grid.areas(axis, whole)[low]
        with np.errstate(divide="ignore", invalid="ignore"):
            own, other = half[low] / area, half[high] / area
            on = np.isfinite(own + other)
        pairs.append((flat[low][on], flat[high][on], own[on], other[on]))
    # An electrode is one unknown more, which touches the cells under it.
    for number, it in enumerate(electric.electrodes):
        cells, resistance = _covered(grid, it, halves, flat)
        if not len(cells):
            msg = f"model.electric.electrodes.{number}: nothing that conducts lies there"
            raise ConfigError(msg)
        metal = np.full(len(cells), n + number)
        pairs.append((cells, metal, resistance, np.zeros(len(cells))))

    a, b, ra, rb = (np.concatenate(it) for it in zip(*pairs, strict=True))
    g, size = 1 / (ra + rb), n + len(electric.electrodes)
    between = coo_matrix((g, (a, b)), (size, size)).tocsr()
    between = between + between.T
    held = [n + k for k, it in enumerate(electric.electrodes) if it.voltage is not None]
    p, drive = np.full(size, np.nan), np.zeros(size)
    for k, it in enumerate(electric.electrodes):
        p[n + k], drive[n + k] = it.voltage if it.voltage is not None else np.nan, it.current or 0
    _solve(between, p, drive, held, grid.ndim)

    # Each side of a face gets what its own resistance takes.
    current = np.nan_to_num(g * (p[a] - p[b]))
    heat = np.bincount(a, current**2 * ra, size) + np.bincount(b, current**2 * rb, size)
    metal = b >= n
    into = -np.bincount(b[metal] - n, current[metal], len(electric.electrodes))
    power = float((p[n:] * into).sum())
    if abs(power - heat.sum()) > _LOST * abs(heat.sum()):
        msg = (
            f"model.electric: the potential is not found: electrodes give {power:.6g} W, and cells "
            f"get {heat.sum():.6g} W; let conductivities differ by less"
        )
        raise ConfigError(msg)
    ends = tuple(zip(p[n:].tolist(), into.tolist(), strict=True))
    return Currents(
        p[:n].reshape(grid.shape), np.asarray(heat[:n], np.float64).reshape(grid.shape), ends
    )


def _sides(axis: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    before = (slice(None),) * axis
    return (*before, slice(None, -1)), (*before, slice(1, None))


def _covered(
    grid: Grid, it: ElectrodeSection, halves: Sequence[Numbers], flat: Any
) -> tuple[Any, Numbers]:
    """The cells under an electrode, and their resistances to it [Ohm]."""
    axis = grid.axis_names.index(it.face[:-1])
    end = 0 if it.face[-1] == "-" else grid.shape[axis] - 1
    plane = tuple(slice(end, end + 1) if k == axis else slice(None) for k in range(grid.ndim))

    # The lower face of the box is the upper one of cells that are not there.
    at_face = -1 if end == 0 and it.face[-1] == "-" else end
    box = tuple((at_face, at_face + 1) if k == axis else (0, m) for k, m in enumerate(grid.shape))
    with np.errstate(divide="ignore"):
        resistance = halves[axis][plane] / grid.areas(axis, box)
    on = np.isfinite(resistance)
    if it.where is not None:
        at: dict[str, Any] = {}
        for k, name in enumerate(grid.axis_names):
            along = [-1 if other == k else 1 for other in range(grid.ndim)]
            places = grid.coordinates(k) if k != axis else grid.ends(k)[[end + (at_face >= 0)]]
            at[name] = places.reshape(along)
        tree = compile_expression(it.where, grid.axis_names).tree
        on = on & np.broadcast_to(np.asarray(evaluate(tree, at)) != 0, on.shape)
    return flat[plane][on], resistance[on]


def _solve(between: Any, p: Numbers, drive: Numbers, held: Sequence[int], ndim: int) -> None:
    """Fill in the potentials that follow from those that are given."""
    from scipy.sparse import csgraph, diags
    from scipy.sparse.linalg import LinearOperator, cg, spilu, splu

    # A part without an electrode of a given voltage has none, and no current unless one is forced.
    _, part = csgraph.connected_components(between, directed=False)
    open_ = np.isin(part, part[list(held)])
    if (drive[~open_] != 0).any():
        msg = (
            "model.electric.electrodes: a current flows into a part that no other electrode touches"
        )
        raise ConfigError(msg)
    known = np.zeros(len(p), np.bool_)
    known[list(held)] = True
    free = np.flatnonzero(open_ & ~known)
    total = np.asarray(between.sum(axis=1)).reshape(-1)

    # Scaled to a diagonal of 1, so that conductivities may differ by many orders.
    scale = 1 / np.sqrt(total[free])
    right = scale * (drive[free] + between[free][:, list(held)] @ p[list(held)])
    matrix = diags(scale) @ (diags(total[free]) - between[free][:, free]) @ diags(scale)
    matrix = matrix.tocsc()
    if len(free) <= _FACTORISED[ndim]:
        factors = splu(matrix)
        found = factors.solve(right)
        # Once more for what the factors left.
        found = found + factors.solve(right - matrix @ found)
    else:
        near = spilu(matrix, drop_tol=1e-4, fill_factor=8)
        inverse = LinearOperator(matrix.shape, near.solve)
        found, failed = cg(matrix, right, rtol=_LEFT, M=inverse, maxiter=5000)
        if failed:
            msg = "model.electric: conjugate gradients do not find the potential; take fewer cells"
            raise ConfigError(msg)
    p[free] = scale * found
