"""Problems with materials, sources and ruled faces, for every method and the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import Boundary, Periodic
from tetris_sim.model.conduction import (
    AFFINE,
    MIRROR,
    Conduction,
    Medium,
    Numbers,
    Parameter,
    Rule,
    RuledFace,
    in_series,
    padded,
)
from tetris_sim.model.formula import compile_expression
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem, StateVariable, Total
from tetris_sim.model.program import Program
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.model.stencil import star_mean

VARIABLE = StateVariable("temperature", "degC", "temperature", Total("heat", "J", 1.0))


def random_ids(shape: Sequence[int], n_ids: int, seed: int = 0) -> npt.NDArray[Any]:
    """Some boxes of materials."""
    rng = np.random.default_rng(seed)
    ids = np.zeros(shape, np.min_scalar_type(n_ids - 1))
    for k in range(3 * n_ids):
        low = [int(rng.integers(0, n)) for n in shape]
        box = tuple(
            slice(i, i + int(rng.integers(1, n + 1))) for i, n in zip(low, shape, strict=True)
        )
        ids[box] = k % n_ids
    return ids


def random_medium(
    ids: npt.NDArray[Any], n_ids: int, spacing: Sequence[float], seed: int = 0
) -> Medium:
    """Conductivities over two decades, some of them anisotropic, and a contact resistance."""
    rng = np.random.default_rng(seed + 1)
    ndim = ids.ndim
    k = 10 ** rng.uniform(-1, 1, (ndim, n_ids))
    resistance = np.zeros((n_ids, n_ids))
    if n_ids > 1:
        resistance[0, 1] = resistance[1, 0] = 0.05
    conductance = np.empty((ndim, n_ids, n_ids))
    for axis, h in enumerate(spacing):
        conductance[axis] = in_series(h, k[axis], resistance)
    return Medium(
        ids=lambda box: ids[tuple(slice(*span) for span in box)],
        conductance=conductance,
        capacity=rng.uniform(0.5, 2, n_ids),
        names=tuple(f"material {n}" for n in range(n_ids)),
    )


def stable_dt(medium: Medium, safety: float = 0.9) -> float:
    """For any arrangement of the materials."""
    most = 2 * medium.conductance.max(axis=2).sum(axis=0)
    return safety * float((medium.capacity / most).min())


def affine(a: Any, b: Any, **options: Any) -> RuledFace:
    """A face whose ghosts are a + b * mirror, with numbers by code."""
    return RuledFace(Rule(AFFINE, (Parameter("a", a), Parameter("b", b))), **options)


def insulated() -> RuledFace:
    """No flow."""
    return affine(np.zeros(1), np.ones(1), lasting=(0.0, 1.0))


def held(value: float) -> RuledFace:
    """A temperature on the face."""
    return affine(np.array([2 * value]), -np.ones(1), lasting=(2 * value, -1.0))


def waving(amplitude: float, period: float) -> RuledFace:
    """A temperature that goes up and down."""
    return affine(lambda t: 2 * amplitude * np.sin(2 * np.pi * t / period)[:, None], -np.ones(1))


def patchy(n_ids: int, seed: int = 3) -> RuledFace:
    """Two patches in a checkerboard, with numbers by patch and material, of which some change."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(-1, 1, 2 * n_ids), rng.uniform(-1, 1, 2 * n_ids)

    def patches(box: Ranges) -> npt.NDArray[np.uint8]:
        index = np.indices([high - low for low, high in box])
        start = np.array([low for low, _ in box]).reshape(-1, *[1] * len(box))
        return np.asarray((index + start).sum(axis=0) // 2 % 2, np.uint8)

    rule = Rule(
        AFFINE, (Parameter("a", lambda t: a[None, :] * np.cos(t)[:, None]), Parameter("b", b))
    )
    return RuledFace(rule, patches=patches, n_patches=2)


def by_formula(text: str, *parameters: Parameter) -> RuledFace:
    """Ghosts from a formula of the mirror point, coordinates and parameters."""
    names = [MIRROR, "x", "y", "z", *(it.name for it in parameters)]
    return RuledFace(Rule(Program(compile_expression(text, names).tree), parameters))


def radiating(ndim: int) -> RuledFace:
    """A flow that grows with the fourth power, and depends on the place."""
    place = "x" if ndim == 1 else "x*y"
    return by_formula(
        f"mirror + rate*(1.5**4 - (abs(mirror) + 0.1)**4)*(1 + 0.1*{place})",
        Parameter("rate", np.array([0.01])),
    )


@dataclass(frozen=True)
class Case:
    """A problem by name.

    Attributes:
        name: for people.
        shape: of the grid.
        n_ids: number of materials.
        face: makes the condition of a face from (axis, side, n_ids); None for a periodic axis.
        source: what heats the points, if anything does.
    """

    name: str
    shape: tuple[int, ...]
    n_ids: int
    face: Callable[[int, int, int], RuledFace | None]
    source: Rule | None = None
    dtype: Any = np.float64
    seed: int = 0
    spacing: tuple[float, ...] = field(default=(0.5, 0.7, 1.1))

    def problem(self, steps: int = 100) -> Problem:
        """The problem, with a random initial state."""
        spacing = self.spacing[: len(self.shape)]
        grid = Grid(self.shape, spacing, tuple(h / 2 for h in spacing))
        ids = random_ids(self.shape, self.n_ids, self.seed)
        medium = random_medium(ids, self.n_ids, spacing, self.seed)
        sides = [
            [self.face(axis, side, self.n_ids) for side in (0, 1)] for axis in range(grid.ndim)
        ]
        faces = tuple((low or Periodic(), high or Periodic()) for low, high in sides)
        state = np.random.default_rng(self.seed + 7).uniform(-1, 1, (1, *self.shape))

        def initial(slab: Slab) -> Field:
            return state[(slice(None), *(slice(*span) for span in slab.spans))].astype(self.dtype)

        return Problem(
            grid=grid,
            stencil=star_mean(grid.ndim),
            boundary=Boundary(faces),
            initial=initial,
            dt=stable_dt(medium),
            steps=steps,
            dtype=np.dtype(self.dtype),
            variables=(VARIABLE,),
            conduction=Conduction(medium, self.source),
        )


def heating(n_ids: int, changes: bool) -> Rule:
    """Power by material, steady or waving."""
    power = np.linspace(-1, 2, n_ids)
    values: Numbers | Callable[[Numbers], Numbers] = power
    if changes:
        values = lambda t: power[None, :] * np.sin(3 * t)[:, None]  # noqa: E731
    return Rule(Program(compile_expression("q", ["q"]).tree), (Parameter("q", values),))


def reacting(n_ids: int) -> Rule:
    """Power that grows with the square of the state, by material."""
    tree = compile_expression("q*(1 + 0.2*mirror*mirror)", ["q", "mirror"]).tree
    return Rule(Program(tree), (Parameter("q", np.linspace(-1, 2, n_ids)),))


def beam() -> Rule:
    """Power that moves through the body."""
    text = "p*exp(-(x - x0)**2)"
    centre = Parameter("x0", lambda t: (0.5 * t)[:, None])
    return Rule(
        Program(compile_expression(text, ["p", "x", "x0"]).tree),
        (Parameter("p", np.ones(1)), centre),
    )


def mixed_faces(axis: int, side: int, n_ids: int) -> RuledFace | None:
    """Another condition on every face."""
    makers: list[Callable[[], RuledFace | None]] = [
        lambda: patchy(n_ids),
        lambda: held(0.3),
        lambda: waving(0.8, 3.0),
        insulated,
        lambda: affine(np.linspace(0, 1, n_ids), np.linspace(-0.5, 0.9, n_ids)),
        lambda: waving(0.3, 5.0),
    ]
    return makers[2 * axis + side]()


def rings(axis: int, side: int, n_ids: int) -> RuledFace | None:
    """Periodic along the first axis, insulated along the others."""
    return None if axis == 0 else insulated()


def closed(axis: int, side: int, n_ids: int) -> RuledFace | None:
    """Insulated everywhere."""
    return insulated()


CASES = (
    Case("rod", (37,), 3, mixed_faces, heating(3, changes=True)),
    Case("ring", (29,), 2, lambda axis, side, n: None),
    Case("plate", (19, 23), 5, mixed_faces, heating(5, changes=True)),
    Case("plate, one material", (18, 21), 1, mixed_faces),
    Case("plate, ring", (17, 22), 4, rings, heating(4, changes=False)),
    Case("plate, beam", (13, 18), 3, closed, beam()),
    Case("plate, float32", (19, 23), 5, mixed_faces, heating(5, changes=True), np.float32),
    Case("block", (7, 9, 11), 6, mixed_faces, heating(6, changes=True)),
    Case("block, rings", (8, 7, 9), 3, rings),
)


REACTING = (
    Case("plate, reacting", (19, 23), 5, mixed_faces, reacting(5)),
    Case("block, reacting, float32", (7, 9, 11), 6, mixed_faces, reacting(6), np.float32),
)


def _radiating(ndim: int, axis: int, side: int, n_ids: int) -> RuledFace:
    return radiating(ndim)


RADIATION = tuple(
    Case(f"radiation, {len(shape)}D", shape, 3, partial(_radiating, len(shape)))
    for shape in ((23,), (14, 15), (6, 7, 8))
)


@dataclass(frozen=True, eq=False)
class GradedAxes:
    """Cells of different widths, with a conductivity of their own each.

    Attributes:
        widths: of the cells along each axis [m].
        conductivity: of every cell [W/(m K)].
        periodic: per axis.
    """

    widths: tuple[Numbers, ...]
    conductivity: Numbers
    periodic: tuple[bool, ...]

    @property
    def separates(self) -> bool:
        """If cells differ by their widths only."""
        return bool((self.conductivity == self.conductivity.flat[0]).all())

    def conductance(self, axis: int, box: Ranges) -> Numbers:
        """By the rule of series, of cells of any width."""
        ahead = tuple((low + (k == axis), high + (k == axis)) for k, (low, high) in enumerate(box))
        resistance = [
            self._cells(lambda b: self._width(axis, b), it)
            / (2 * self._cells(lambda b: self.conductivity[_inside(b)], it))
            for it in (box, ahead)
        ]
        area = self._cells(self.volume, box) / self._cells(lambda b: self._width(axis, b), box)
        return np.asarray(area / sum(resistance))

    def series(self, axis: int, box: Ranges) -> Numbers:
        """Half of it on each side: only enthalpies ask."""
        half = 0.5 / self.conductance(axis, box)
        return np.stack([half, half, 0 * half], axis=-1)

    def radiance(self, axis: int, box: Ranges) -> Numbers:
        """Nothing radiates."""
        return 0 * self.conductance(axis, box)

    def capacity(self, box: Ranges) -> Numbers:
        """That of the volume."""
        return 2.0 * self.volume(box)

    def volume(self, box: Ranges) -> Numbers:
        """Product of the widths."""
        product = np.ones([1] * len(box))
        for axis in range(len(box)):
            product = product * self._width(axis, box)
        return product

    def _width(self, axis: int, box: Ranges) -> Numbers:
        shape = [-1 if k == axis else 1 for k in range(len(box))]
        along = self.widths[axis][slice(*box[axis])].reshape(shape)
        return np.broadcast_to(along, [high - low for low, high in box])

    def _cells(self, of_box: Callable[[Ranges], Numbers], box: Ranges) -> Numbers:
        return padded(of_box, box, self.conductivity.shape, self.periodic)


def _inside(box: Ranges) -> tuple[slice, ...]:
    return tuple(slice(low, high) for low, high in box)


def graded(
    shape: tuple[int, ...],
    face: Callable[[int, int, int], RuledFace | None],
    *,
    alike: bool = False,
) -> Problem:
    """A source in a body whose cells are all different; or alike but for their widths, without."""
    n_ids = 1 if alike else 2
    heat = None if alike else heating(2, changes=True)
    problem = Case("graded", shape, n_ids, face, heat).problem()
    assert problem.conduction is not None
    rng = np.random.default_rng(11)
    coefficients = GradedAxes(
        tuple(rng.uniform(0.5, 1.5, n) for n in shape),
        np.full(shape, 0.7) if alike else rng.uniform(0.2, 2.0, shape),
        tuple(problem.boundary.periodic(axis) for axis in range(len(shape))),
    )
    whole = tuple((0, n) for n in shape)
    most = sum(2 * coefficients.conductance(axis, whole).max() for axis in range(len(shape)))
    return replace(
        problem,
        conduction=replace(problem.conduction, coefficients=coefficients),
        dt=0.4 * float(coefficients.capacity(whole).min() / most),
    )
