"""Stencils: a linear update of a point from its neighbours, and properties that follow from its
weights alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from tetris_sim.support.wording import label, svg, table

Offset = tuple[int, ...]
_Objective = Callable[[npt.NDArray[np.complex128]], npt.NDArray[np.float64]]

_CLOSE, _FLAT = 1e-10, 1e-15  # a simplex of so small corners and values is a point
_LISTED = 13  # weights in a notebook
# Points per axis of the wave-number grid on which a symbol is first searched; the best of them are
# then refined.
_SYMBOL_SAMPLES = {1: 1024, 2: 96, 3: 32}


@dataclass(frozen=True)
class Stencil:
    """u_new(i) = sum over k of weights[k] * u(i + offsets[k]).

    Offsets are kept in lexicographic order whatever the order of the input: the order of the terms
    is the order of the roundings, and two ways to write one stencil must give the same bits.

    >>> heat = Stencil(offsets=((0,), (-1,), (1,)), weights=(0.5, 0.25, 0.25))
    >>> heat.offsets, heat.radius
    (((-1,), (0,), (1,)), 1)

    Attributes:
        offsets: points read, relative to the point written, array order (dz, dy, dx).
        weights: dimensionless factors, one per offset. (For an operator such as a Laplacian: its
            coefficients.)

    Raises:
        ValueError: no offset, a repeated one, different lengths, or a weight that is not finite.
    """

    offsets: tuple[Offset, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.offsets or len(self.offsets) != len(self.weights):
            msg = (
                f"a stencil needs one weight per offset, got {len(self.offsets)} offsets, "
                f"{len(self.weights)} weights"
            )
            raise ValueError(msg)

        if len({len(offset) for offset in self.offsets}) != 1 or not 1 <= len(self.offsets[0]) <= 3:
            msg = f"all offsets of a stencil have the same 1, 2 or 3 components, got {self.offsets}"
            raise ValueError(msg)

        if len(set(self.offsets)) != len(self.offsets):
            twice = sorted({o for o in self.offsets if self.offsets.count(o) > 1})
            msg = f"offsets {twice} are given more than once"
            raise ValueError(msg)

        if not all(math.isfinite(weight) for weight in self.weights):
            msg = f"weights must be finite, got {self.weights}"
            raise ValueError(msg)

        # A frozen dataclass is normalized through object.__setattr__.
        order = sorted(range(len(self.offsets)), key=lambda k: self.offsets[k])
        object.__setattr__(
            self, "offsets", tuple(tuple(int(c) for c in self.offsets[k]) for k in order)
        )
        object.__setattr__(self, "weights", tuple(float(self.weights[k]) for k in order))

    @classmethod
    def from_terms(cls, terms: Mapping[Offset, float]) -> Stencil:
        """Make a stencil from {offset: weight}."""
        return cls(offsets=tuple(terms), weights=tuple(terms.values()))

    @property
    def terms(self) -> dict[Offset, float]:
        """The stencil as {offset: weight}, in lexicographic order of the offsets."""
        return dict(zip(self.offsets, self.weights, strict=True))

    def _repr_html_(self) -> str:
        rows = [
            ("points", str(len(self.offsets))),
            ("axes", str(self.ndim)),
            ("radius", str(self.radius)),
            ("sum of weights", f"{math.fsum(self.weights):.6g}"),
        ]
        terms = [
            (", ".join(f"{k:+d}" if k else "0" for k in reversed(offset)), f"{weight:.6g}")
            for offset, weight in zip(self.offsets[:_LISTED], self.weights, strict=False)
        ]
        more = len(self.offsets) - len(terms)
        rest = [("…", f"{more} more")] if more else []
        return table("Stencil", [*rows, *terms, *rest], picture=self._drawing())

    def _drawing(self) -> str:
        """Draw the points in a plane of the last two axes, their area by the weights' magnitude."""
        # A 3D stencil is drawn as its planes along z, side by side.
        reach, largest = self.radius, max(map(abs, self.weights)) or 1.0
        side = min(28.0, 200.0 / (2 * reach + 1))
        planes = sorted({offset[0] for offset in self.offsets}) if self.ndim == 3 else [None]
        shapes, rows = [], 2 * reach + 1 if self.ndim > 1 else 1

        for number, plane in enumerate(planes):
            left = number * (2 * reach + 1.6) * side
            for offset, weight in zip(self.offsets, self.weights, strict=True):
                if plane is not None and offset[0] != plane:
                    continue
                x = left + (offset[-1] + reach + 0.5) * side
                y = (reach - offset[-2] + 0.5) * side if self.ndim > 1 else 0.5 * side
                # A radius by the square root of the weight makes areas proportional to it; red is
                # positive.
                size = side * (0.12 + 0.33 * math.sqrt(abs(weight) / largest))
                fill = "#c8553d" if weight > 0 else "#3d6bc8"
                shapes.append(
                    f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="{fill}" stroke="none">'
                    f"<title>{weight:.6g}</title></circle>"
                )
            if plane is not None:
                middle = left + (reach + 0.5) * side
                shapes.append(label(middle, rows * side + 12, f"z {plane:+d}" if plane else "z 0"))
        width = len(planes) * (2 * reach + 1.6) * side
        return svg(width, rows * side + (18 if self.ndim == 3 else 0), shapes)

    @property
    def ndim(self) -> int:
        """Number of axes: 1, 2 or 3."""
        return len(self.offsets[0])

    @cached_property
    def radii(self) -> tuple[int, ...]:
        """Largest distance read along each axis: the width of the ghost ring there."""
        return tuple(max(abs(offset[axis]) for offset in self.offsets) for axis in range(self.ndim))

    @property
    def radius(self) -> int:
        """Largest distance read along any axis."""
        return max(self.radii)

    @property
    def n_points(self) -> int:
        """Number of points read."""
        return len(self.offsets)

    @cached_property
    def symmetric(self) -> bool:
        """Whether opposite offsets have equal weights, which makes the symbol real."""
        terms = self.terms
        return all(
            terms.get(tuple(-c for c in offset)) == weight for offset, weight in terms.items()
        )

    @property
    def is_star(self) -> bool:
        """Whether every point read lies on an axis through the point written."""
        return all(sum(c != 0 for c in offset) <= 1 for offset in self.offsets)

    def is_mirrored(self, axis: int) -> bool:
        """Whether the stencil is unchanged when an axis is reversed."""
        terms = self.terms
        return all(
            terms.get((*offset[:axis], -offset[axis], *offset[axis + 1 :])) == weight
            for offset, weight in terms.items()
        )

    def dense(self) -> npt.NDArray[np.float64]:
        """Return the weights of the whole box around the point, (2 r0 + 1, [2 r1 + 1, [2 r2 + 1]]).

        >>> Stencil(((-1,), (1,)), (0.25, 0.75)).dense()
        array([0.25, 0.  , 0.75])
        """
        box = np.zeros([2 * radius + 1 for radius in self.radii])
        for offset, weight in self.terms.items():
            box[tuple(c + radius for c, radius in zip(offset, self.radii, strict=True))] = weight
        return box

    def power(self, steps: int) -> Stencil:
        """Compose `steps` applications into one stencil of `steps` times the radius.

        >>> Stencil(((-1,), (1,)), (0.5, 0.5)).power(2).terms
        {(-2,): 0.25, (0,): 0.5, (2,): 0.25}
        """
        if steps < 1:
            msg = f"a stencil can be composed 1 or more times, got {steps}"
            raise ValueError(msg)
        composed = self.terms
        for _ in range(steps - 1):
            composed = _convolve(composed, self.terms)
        return Stencil.from_terms(composed)

    def symbol(self, theta: npt.ArrayLike) -> npt.NDArray[np.complex128]:
        """Return the amplification factor of one application for the wave exp(i theta.j).

        Args:
            theta: phase per point along each axis [rad], (ndim, ...).

        Returns:
            The complex factors, (...).
        """
        phase = np.tensordot(
            np.array(self.offsets, dtype=np.float64), np.asarray(theta, dtype=np.float64), axes=1
        )
        return np.asarray(
            np.tensordot(np.array(self.weights), np.exp(1j * phase), axes=1), dtype=np.complex128
        )

    @cached_property
    def spectral_radius(self) -> float:
        """Largest |symbol|: the factor by which one step can amplify a periodic field (von Neumann
        analysis).

        Above 1 the iteration is unstable. For a symmetric stencil the bound holds with every
        reflecting face too; for others it is the bound of the periodic problem.
        """
        return -_minimise_over_waves(self, lambda value: -np.abs(value))


def identity(ndim: int) -> Stencil:
    """Return the stencil that changes nothing."""
    return Stencil(offsets=((0,) * ndim,), weights=(1.0,))


def add(*stencils: Stencil) -> Stencil:
    """Return the stencil whose result is the sum of the results of `stencils`.

    >>> add(Stencil(((0,),), (1.0,)), Stencil(((0,), (1,)), (-1.0, 1.0))).terms
    {(0,): 0.0, (1,): 1.0}
    """
    total: dict[Offset, float] = {}
    for stencil in stencils:
        for offset, weight in stencil.terms.items():
            total[offset] = total.get(offset, 0.0) + weight
    return Stencil.from_terms(total)


def scale(stencil: Stencil, factor: float) -> Stencil:
    """Multiply every weight of a stencil by `factor`."""
    return Stencil(stencil.offsets, tuple(factor * weight for weight in stencil.weights))


def compose(first: Stencil, second: Stencil) -> Stencil:
    """Return the stencil that applies `first` and then `second`."""
    return Stencil.from_terms(_convolve(first.terms, second.terms))


def euler_step(operator: Stencil, dt: float) -> Stencil:
    """Return the forward Euler step of du/dt = operator(u): identity + dt * operator.

    Args:
        operator: coefficients [1/s].
        dt: time step [s].
    """
    return add(identity(operator.ndim), scale(operator, dt))


@lru_cache(maxsize=256)
def largest_stable_dt(operator: Stencil) -> float:
    """Return the largest dt [s] for which forward Euler with `operator` [1/s] amplifies no wave.

    |1 + dt s|^2 <= 1 for s = symbol(theta) means dt <= -2 Re(s) / |s|^2; the answer is the smallest
    such bound over all waves. It is 0 where some wave grows for every dt, and infinite for an
    operator that is zero.
    """

    def bound(symbol: npt.NDArray[np.complex128]) -> npt.NDArray[np.float64]:
        magnitude = np.abs(symbol) ** 2
        # The constant wave (s = 0 for a derivative) is neutral; rounding must not turn it into a
        # bound.
        neutral = magnitude <= (1e-12 * sum(abs(w) for w in operator.weights)) ** 2
        return np.where(neutral, np.inf, -2 * symbol.real / np.where(neutral, 1.0, magnitude))

    return max(0.0, _minimise_over_waves(operator, bound))


def _convolve(first: Mapping[Offset, float], second: Mapping[Offset, float]) -> dict[Offset, float]:
    # math.fsum makes the composed weight independent of the order in which its parts are met.
    parts: dict[Offset, list[float]] = {}
    for offset, weight in first.items():
        for shift, factor in second.items():
            parts.setdefault(tuple(a + b for a, b in zip(offset, shift, strict=True)), []).append(
                weight * factor
            )
    return {offset: math.fsum(values) for offset, values in sorted(parts.items())}


def _minimise_over_waves(stencil: Stencil, objective: _Objective) -> float:
    """Minimize objective(symbol(theta)) over all theta: a sampled search, then a local refinement
    of the best samples.
    """
    ndim = stencil.ndim

    # At least 8 samples per period of the fastest oscillation of the symbol.
    samples = max(_SYMBOL_SAMPLES[ndim], 8 * stencil.radius)
    samples += samples % 2  # an even number contains theta = pi, where the checkerboard wave lies

    axis = 2 * np.pi * np.arange(samples) / samples
    theta = np.stack(np.meshgrid(*[axis] * ndim, indexing="ij")).reshape(ndim, -1)
    values = np.concatenate([objective(stencil.symbol(part)) for part in _parts(theta)])
    best = float(values.min())
    if not math.isfinite(best):
        return best

    # The true minimum may lie near any of the lowest samples, so three are refined.
    for index in np.argsort(values)[:3]:
        if not np.isfinite(values[index]):
            continue
        lowest = _descend(
            lambda point: float(objective(stencil.symbol(point.reshape(ndim, 1)))[0]),
            np.vstack([theta[:, index], theta[:, index] + np.pi / samples * np.eye(ndim)]),
        )
        best = min(best, lowest)
    return best


def _parts(
    theta: npt.NDArray[np.float64], width: int = 1 << 16
) -> Iterable[npt.NDArray[np.float64]]:
    # In batches, which bound the memory of the complex exponentials.
    for start in range(0, theta.shape[1], width):
        yield theta[:, start : start + width]


def _descend(
    objective: Callable[[npt.NDArray[np.float64]], float], simplex: npt.NDArray[np.float64]
) -> float:
    """Return the lowest value that the downhill simplex method finds.

    J. A. Nelder and R. Mead, A simplex method for function minimization, The Computer Journal 7
    (1965) 308: reflection 1, expansion 2, contraction and shrinkage 1/2. Bitwise identical to
    `scipy.optimize.minimize`, whose import takes longer than a small run.

    Args:
        objective: the function to minimize.
        simplex: initial corners, (n + 1, n).
    """
    # SciPy's default limits: 200 iterations and evaluations per axis.
    n_axes = simplex.shape[1]
    values = np.array([objective(corner) for corner in simplex])
    most = 200 * n_axes
    left = most - len(values)

    for _ in range(most - 1):
        order = np.argsort(values)
        simplex, values = simplex[order], values[order]
        flat = np.max(np.abs(values[0] - values[1:])) <= _FLAT
        if flat and np.max(np.abs(simplex[1:] - simplex[0])) <= _CLOSE:
            break

        # Reflect the worst corner at the centre of the others.
        middle, worst = simplex[:-1].sum(axis=0) / n_axes, simplex[-1]
        corner = 2.0 * middle - worst
        if left < 1:
            break
        value, left = objective(corner), left - 1
        if values[0] <= value < values[-2]:
            simplex[-1], values[-1] = corner, value
            continue

        # A second trial: expansion, or contraction on the better side.
        outside = value < values[-1]
        if value < values[0]:
            other = 3.0 * middle - 2.0 * worst
        else:
            other = 1.5 * middle - 0.5 * worst if outside else 0.5 * middle + 0.5 * worst
        if left < 1:
            break
        found, left = objective(other), left - 1

        # Accept the better of both trials, or shrink towards the best corner if the contraction
        # failed.
        if value < values[0]:
            simplex[-1], values[-1] = (other, found) if found < value else (corner, value)
        elif found <= value if outside else found < values[-1]:
            simplex[-1], values[-1] = other, found
        else:
            for j in range(1, n_axes + 1):
                simplex[j] = simplex[0] + 0.5 * (simplex[j] - simplex[0])
                if left < 1:
                    return float(values.min())
                values[j], left = objective(simplex[j]), left - 1
    return float(values.min())


def chain_order(offsets: tuple[Offset, ...]) -> list[int]:
    """Return the order in which stepwise methods, on CPU and GPU, add up the terms of a stencil:
    along the last axis first.

    One order for all methods makes their results bitwise identical. This one lets a kernel that
    walks along a row add a whole column of neighbours, as soon as it has loaded them, to every
    point that needs them.

    >>> chain_order(((-1, 0), (0, -1), (0, 0), (0, 1), (1, 0)))
    [1, 0, 2, 4, 3]
    """
    return sorted(range(len(offsets)), key=lambda k: (offsets[k][-1], offsets[k]))


def star_mean(ndim: int, radii: Sequence[int] | None = None) -> Stencil:
    """Return the star stencil of the points that a step reads along the axes, `radii` far, as their
    mean; only its offsets matter.
    """
    offsets = [(0,) * ndim]
    for axis, radius in enumerate(radii or (1,) * ndim):
        shifts = (*range(-radius, 0), *range(1, radius + 1))
        offsets += [tuple(shift * (k == axis) for k in range(ndim)) for shift in shifts]
    return Stencil(offsets=tuple(offsets), weights=(1 / len(offsets),) * len(offsets))
