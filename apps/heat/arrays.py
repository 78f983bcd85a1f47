"""A body given as arrays: the material and the heat of every point, and faces of numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.heat.rules import Surface, flowing, held, join
from tetris_sim.apps.time_functions import TimeFunction
from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import Boundary, Dirichlet, Face, Fixed, Neumann, Robin
from tetris_sim.model.conduction import (
    Conduction,
    Ids,
    Medium,
    Numbers,
    Parameter,
    Rule,
    RuledFace,
    in_series,
)
from tetris_sim.model.formula import Constant, Variable
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import as_array
from tetris_sim.model.program import Program
from tetris_sim.model.slab import Ranges

_MOST_IDS = 2048


def make_conduction(
    grid: Grid,
    materials: npt.ArrayLike | None,
    conductivity: npt.ArrayLike,
    capacity: npt.ArrayLike,
    sources: npt.ArrayLike | None = None,
) -> tuple[Conduction, Numbers]:
    """A body of arrays, and the conductivity along each axis by id, (ndim, n_ids).

    Args:
        grid: where points lie.
        materials: the material of each point, of the grid's shape, counted from 0; None for one.
        conductivity: of each material, (n,), or along each axis of the array, (ndim, n) [W/(m K)].
        capacity: density * specific heat of each material, (n,) [J/(m^3 K)].
        sources: what heats each point, of the grid's shape [W/m^3].

    Raises:
        ConfigError: arrays that do not fit together, or numbers that are not positive.
    """
    k, c = (
        np.array(as_array(name, numbers), np.float64, ndmin=1)
        for name, numbers in (("conductivity", conductivity), ("capacity", capacity))
    )
    k = np.broadcast_to(k, (grid.ndim, len(c))) if k.shape[-1] == len(c) else k
    if c.ndim != 1 or k.shape != (grid.ndim, len(c)):
        msg = (
            f"conductivity has the shape {np.shape(conductivity)} and capacity {c.shape}; one "
            f"number per material, or conductivity ({grid.ndim}, materials), is wanted"
        )
        raise ConfigError(msg)
    for name, numbers in (("conductivity", k), ("capacity", c)):
        if not (np.isfinite(numbers).all() and (numbers > 0).all()):
            msg = f"{name} is {numbers.tolist()}; every number must be finite and greater than 0"
            raise ConfigError(msg)

    material = (
        np.zeros(grid.shape, np.int64) if materials is None else as_array("materials", materials)
    )
    heat = (
        np.zeros(grid.shape) if sources is None else as_array("sources", sources).astype(np.float64)
    )
    for name, array in (("materials", material), ("sources", heat)):
        if array.shape != grid.shape:
            msg = f"{name} has the shape {array.shape}; that of field, {grid.shape}, is wanted"
            raise ConfigError(msg)
    if material.dtype.kind not in "iu" or not ((material >= 0) & (material < len(c))).all():
        msg = f"materials are whole numbers from 0 to {len(c) - 1}, as capacity lists them"
        raise ConfigError(msg)
    if not np.isfinite(heat).all():
        msg = "sources must be finite"
        raise ConfigError(msg)
    return _conduction(grid, material, heat, (k, c))


def _conduction(
    grid: Grid, material: npt.NDArray[np.integer], heat: Numbers, own: tuple[Numbers, Numbers]
) -> tuple[Conduction, Numbers]:
    """An id for each pair of material and heat."""
    powers, number = np.unique(heat, return_inverse=True)
    pairs, ids = np.unique(
        material.reshape(-1).astype(np.int64) * len(powers) + number.reshape(-1),
        return_inverse=True,
    )
    if len(pairs) > _MOST_IDS:
        msg = (
            f"materials and sources make {len(pairs)} different kinds of points; at most "
            f"{_MOST_IDS} are possible"
        )
        raise ConfigError(msg)
    of_id, power_of_id = pairs // len(powers), powers[pairs % len(powers)]
    kept: Ids = ids.reshape(grid.shape).astype(np.uint8 if len(pairs) <= 256 else np.uint16)

    def cut(box: Ranges) -> Ids:
        return kept[tuple(slice(*span) for span in box)]

    k, c = own
    medium = Medium(
        ids=cut,
        conductance=np.stack(
            [in_series(h, along[of_id]) for h, along in zip(grid.spacing, k, strict=True)]
        ),
        capacity=c[of_id],
        names=tuple(f"material {n}" for n in of_id),
    )
    rule = Rule(Program(Variable("q")), (Parameter("q", power_of_id),))
    return Conduction(medium, rule if heat.any() else None), k[:, of_id]


def rule_faces(boundary: Boundary, grid: Grid, k: Numbers, *, heated: bool) -> Boundary:
    """The same faces as rules; heat flows by the conductivity of the points beside them.

    Args:
        boundary: faces of numbers.
        grid: where points lie.
        k: conductivity along each axis by id, (ndim, n_ids) [W/(m K)].
        heated: whether anything heats points.
    """

    def ruled(face: Face, axis: int) -> Face:
        surface = Surface(grid.spacing[axis], k[axis], {})
        match face:
            case Dirichlet(value):
                rules = [held(_number(value), surface)]
            case Fixed(value):
                rules = [held(_number(value), surface, on_ghost=True)]
            case Neumann(flux=flux):
                rules = [flowing(surface, flux=[_number(flux)])]
            case Robin(h=h, ambient=ambient):
                rules = [flowing(surface, h=_number(h), ambient=_number(ambient))]
            case _:
                return face
        made = join(rules, None, axis, k.shape[1])
        lasts = not heated or made.lasting == (0.0, 1.0)
        return made if lasts else RuledFace(made.rule)

    pairs = [
        (ruled(low, axis), ruled(high, axis)) for axis, (low, high) in enumerate(boundary.faces)
    ]
    return Boundary(tuple(pairs))


def _number(value: float) -> TimeFunction:
    return TimeFunction(Constant(float(value)))


def stable_step(conduction: Conduction, grid: Grid, periodic: Sequence[bool]) -> float:
    """The largest stable time step [s]: the least capacity over the sum of conductances around."""
    medium = conduction.medium
    whole = tuple((0, n) for n in grid.shape)
    ids = medium.ids(whole)
    total = np.zeros(grid.shape)
    for axis, ring in enumerate(periodic):
        edge = np.pad(
            ids,
            [(1, 1) if k == axis else (0, 0) for k in range(grid.ndim)],
            mode="wrap" if ring else "edge",
        )
        for shift in (0, 2):
            beside = np.moveaxis(
                np.moveaxis(edge, axis, 0)[shift : shift + ids.shape[axis]], 0, axis
            )
            total += medium.conductance[axis][ids, beside]
    return float((medium.capacity[ids] / total).min())
