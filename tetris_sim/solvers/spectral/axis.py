"""Eigenvectors of the second difference along one axis, the expansion of a state in them, and
operators that are separable by axis.

(T u)_i = u_(i-1) - 2 u_i + u_(i+1) with ghosts b * (outermost point), or periodic. For |b| <= 1 its
eigenvalues are -4 sin^2(theta/2), and its eigenvectors v_i = cos((i + 1/2) theta - alpha), where

    tan(alpha) = (1 - b) / (1 + b) * cot(theta / 2)      at the low face, beta likewise at the high
    n theta    = k pi + alpha + beta,   k = 0, 1, ..., n - 1.

With b = 1, -1 or 0 these are cosine and sine transforms; any other b uses the vectors as a matrix.
Angles are stored as theta = (k pi + delta) / n, so no phase loses digits however long the axis.
Cells that differ in width have no such formula (`between_cells`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tetris_sim.model.problem import Problem
from tetris_sim.model.reference import advance

Numbers = npt.NDArray[np.float64]
Ends = tuple[float, float]  # b of the low and the high face

MOST_DENSE = 2048  # points of an axis whose eigenvectors are not known: seconds on one core
_HALVINGS = 110  # of an interval of length pi: to the last bit of angles far below 1
_CHUNK_POINTS = 1 << 24  # of a state that are transformed at a time
_FEW = 48  # coefficients that a matrix product makes as fast as a transform makes all
# Transform of scipy.fft and its type, by the b of both faces.
_TRANSFORMS: dict[Ends | None, tuple[str, int]] = {
    None: ("rfft", 0),  # periodic
    (1.0, 1.0): ("dct", 2),
    (-1.0, -1.0): ("dst", 2),
    (1.0, -1.0): ("dct", 4),
    (-1.0, 1.0): ("dst", 4),
    (0.0, 0.0): ("dst", 1),
}
_COMMON = (0, 2)  # types of transforms that every device has


class Arrays(Protocol):
    """The array library of a device.

    Attributes:
        xp: NumPy or CuPy.
        fft: scipy.fft or cupyx.scipy.fft.
        types: of cosine and sine transforms that it has.
        options: keywords for all its functions.
    """

    xp: Any
    fft: Any
    types: frozenset[int]
    options: dict[str, Any]

    def each(self, parts: Sequence[slice], work: Any) -> None:
        """Call `work(part)` for all parts, in parallel if that helps."""


@dataclass(frozen=True, eq=False)
class SpectralAxis:
    """The second difference along an axis of n points.

    Attributes:
        n: points.
        ends: b of both faces, from -1 to 1; None where the axis is periodic.
        given: (eigenvalues, eigenvectors as rows) of another symmetric operator, instead.
        root: square roots of the widths of cells, (n,): `given` belongs to states times them.
        kept: all eigenvectors, by the library that holds them.
    """

    n: int
    ends: Ends | None
    given: tuple[Numbers, Numbers] | None = None
    root: Numbers | None = None
    kept: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def _waves(self) -> tuple[npt.NDArray[np.int64], Numbers]:
        """(k, delta) of every eigenvector, where theta = (k pi + delta) / n."""
        n, k = self.n, np.arange(self.n)
        if self.ends is None:  # cosines of 0, 1, ... n // 2 waves, then the sines
            waves = np.concatenate([np.arange(n // 2 + 1), np.arange(1, (n + 1) // 2)])
            return 2 * waves, np.zeros(n)

        # delta = alpha + beta lies in [0, pi], and alpha and beta fall with theta: bisection finds
        # the root of each k, all at once.
        low, high = np.zeros(n), np.full(n, math.pi)
        for _ in range(_HALVINGS):
            delta = (low + high) / 2
            theta = (k * math.pi + delta) / n
            above = delta > _phase(self.ends[0], theta) + _phase(self.ends[1], theta)
            low, high = np.where(above, low, delta), np.where(above, delta, high)
        return k, low

    @cached_property
    def theta(self) -> Numbers:
        """Angles, one per eigenvector."""
        k, delta = self._waves
        return np.asarray((k * math.pi + delta) / self.n)

    def less_one(self, multiple: int = 1) -> Numbers:
        """Return cos(multiple * theta) - 1 without cancellation; half an eigenvalue for multiple
        1.
        """
        if self.given is not None:
            return self.given[0] / 2
        return np.asarray(-2 * np.sin(multiple * self.theta / 2) ** 2)

    def vectors(self, modes: npt.NDArray[np.int64], xp: Any = np) -> Any:
        """Return orthonormal eigenvectors as rows, (len(modes), n), in an array of a library."""
        if self.given is not None:
            return xp.asarray(self.given[1][modes])
        rows = xp.empty((len(modes), self.n))
        for part in chunks(len(modes), 8 * self.n):  # with its temporary arrays
            rows[part] = self._rows(modes[part], xp)
        return rows

    def _rows(self, modes: npt.NDArray[np.int64], xp: Any) -> Any:
        n, (waves, delta) = self.n, self._waves
        # Periodic: cosines have phase 0, and the modes after n // 2 are sines.
        if self.ends is None:
            twice, phase = 2 * xp.arange(n), np.where(modes > n // 2, math.pi / 2, 0.0)
        else:
            twice, phase = 2 * xp.arange(n) + 1, _phase(self.ends[0], self.theta[modes])
        # Exact except for whole half turns, whose signs also turn those of the rounding of pi:
        # otherwise all vectors would err to the same side at the faces, where the errors add up.
        parts = twice * xp.asarray(waves[modes, None])
        turns = (parts + n) // (2 * n)
        angle = (parts - 2 * n * turns) * (math.pi / (2 * n))
        angle += twice * xp.asarray(delta[modes, None] / (2 * n)) - xp.asarray(phase[:, None])
        rows = xp.cos(angle) * (1 - 2 * (turns % 2))
        return rows / xp.sqrt((rows * rows).sum(axis=1, keepdims=True))

    def matrix(self, xp: Any) -> Any:
        """Return all eigenvectors; kept, since they take n^2 cosines."""
        if xp.__name__ not in self.kept:
            self.kept[xp.__name__] = self.vectors(np.arange(self.n), xp)
        return self.kept[xp.__name__]

    @property
    def needs_matrix(self) -> bool:
        """Whether some device has no transform for the axis."""
        return self.given is not None or _TRANSFORMS.get(self.ends, ("", 0))[1] not in _COMMON

    def transform(self, types: frozenset[int]) -> tuple[str, int] | None:
        """Return the transform that gives all coefficients in n log n operations, among transforms
        of some types; None if there is none.
        """
        name = None if self.given is not None else _TRANSFORMS.get(self.ends)
        return name if name is not None and name[1] in {0, *types} else None

    def worth_picking(self, types: frozenset[int], n_modes: int) -> bool:
        """Whether so few coefficients are computed faster one by one than all by the transform."""
        return n_modes <= (_FEW if self.transform(types) else self.n // 2)


def between_cells(widths: Numbers, ends: Ends | None) -> SpectralAxis:
    """Return the axis of cells of different widths: (T u)_i = (g_i (u_(i+1) - u_i) - g_(i-1) (u_i -
    u_(i-1))) / h_i, with g the inverse of the distance of centres, beyond a face 1 / h of the cell
    inside [1/m^2].

    Args:
        widths: h of the cells, (n,) [m].
        ends: b of both faces; None if it is periodic.
    """
    # h_i T is symmetric, so with v = sqrt(h) u the operator becomes h^-1/2 (h T) h^-1/2.
    n, root = len(widths), np.sqrt(widths)
    between = 2 / (widths[1:] + widths[:-1])
    matrix = np.diag(between, 1) + np.diag(between, -1)
    lost = np.zeros(n)  # through both faces
    round_the_end = 0.0
    if ends is None:
        round_the_end = 2 / (widths[0] + widths[-1])
        matrix[0, -1] += round_the_end
        matrix[-1, 0] += round_the_end
    else:
        lost[0] += (1 - ends[0]) / widths[0]
        # A ghost b u: g (b u - u) = -(1 - b) u / h.
        lost[-1] += (1 - ends[1]) / widths[-1]
    matrix -= np.diag(matrix.sum(axis=1) + lost)
    vectors = np.linalg.eigh(matrix / np.multiply.outer(root, root))[1]

    # Rayleigh quotients as sums of squares, so eigenvalues near 0 keep their digits.
    whole = vectors / root[:, None]
    values = -(lost[:, None] * whole**2).sum(axis=0)
    values -= (between[:, None] * np.diff(whole, axis=0) ** 2).sum(axis=0)
    values -= round_the_end * (whole[0] - whole[-1]) ** 2
    return SpectralAxis(n, None, (values, np.ascontiguousarray(vectors.T)), root)


@dataclass(eq=False)
class ModalExpansion:
    """Coefficients along one axis of arrays: all of them, or some.

    Attributes:
        axis: supplies the eigenvectors.
        place: number of that axis in the arrays.
        arrays: array library.
        modes: requested eigenvectors; None for all, in place.
    """

    axis: SpectralAxis
    place: int
    arrays: Arrays
    modes: npt.NDArray[np.int64] | None = None

    @cached_property
    def _matrix(self) -> Any:
        xp = self.arrays.xp
        return self.axis.matrix(xp) if self.modes is None else self.axis.vectors(self.modes, xp)

    def expand(self, u: Any) -> Any:
        """Return the coefficients of a state."""
        if self.modes is not None:
            return self._product(self._matrix, u * self._weights(u.ndim))
        self._replace(u, self._forward)
        return u

    def sum(self, coefficients: Any) -> Any:
        """Return the state that has given coefficients."""
        if self.modes is not None:
            return self._product(self._matrix.T, coefficients) / self._weights(coefficients.ndim)
        self._replace(coefficients, self._backward)
        return coefficients

    def columns(self, u: Any) -> Any:
        """Return the coefficients of the columns of a matrix, for any `place`."""
        return ModalExpansion(self.axis, 0, self.arrays).expand(u)

    def _weights(self, ndim: int) -> Any:
        """Return the factors that symmetrize the operator, shaped for arrays of so many axes."""
        if self.axis.root is None:
            return 1.0
        shape = [-1 if place == self.place else 1 for place in range(ndim)]
        return self.arrays.xp.asarray(self.axis.root).reshape(shape)

    def _product(self, matrix: Any, u: Any) -> Any:
        """Multiply a matrix with all columns along the axis."""
        # Shaped such that every case is one matrix product without transposed copies.
        xp, place = self.arrays.xp, self.place
        if place == u.ndim - 1:
            return u @ matrix.T
        if place > 0 and u.ndim > place + 1:
            return xp.matmul(matrix, u)
        return (matrix @ u.reshape(u.shape[0], -1)).reshape(-1, *u.shape[1:])

    def _replace(self, u: Any, change: Any) -> None:
        """Transform all columns along the axis in place, a chunk at a time."""
        # Chunks bound the memory of a transform's temporary arrays.
        other = 1 if self.place == 0 else 0
        if u.ndim == 1:
            u[...] = change(u)
            return
        for part in chunks(u.shape[other], u.size // u.shape[other]):
            some = u[:, part] if other == 1 else u[part]
            some[...] = change(some)

    def _forward(self, u: Any) -> Any:
        match self.axis.transform(self.arrays.types):
            case None:
                return self._product(self._matrix, u * self._weights(u.ndim))
            case "rfft", _:
                return self._real_forward(u)
            case name, kind:
                return self._call(name, u, type=kind)

    def _backward(self, u: Any) -> Any:
        match self.axis.transform(self.arrays.types):
            case None:
                return self._product(self._matrix.T, u) / self._weights(u.ndim)
            case "rfft", _:
                return self._real_backward(u)
            case name, kind:
                return self._call("i" + name, u, type=kind)

    def _call(self, name: str, u: Any, **options: Any) -> Any:
        call = getattr(self.arrays.fft, name)
        return call(u, axis=self.place, norm="ortho", **options, **self.arrays.options)

    def _real_forward(self, u: Any) -> Any:
        """Transform a periodic axis: cosines, then sines, as real numbers."""
        xp, n = self.arrays.xp, self.axis.n
        waves = xp.moveaxis(self._call("rfft", u), self.place, 0)
        # rfft gives cos - i sin: the sine coefficients are minus the imaginary parts.
        packed = xp.empty((n, *waves.shape[1:]))
        packed[: n // 2 + 1] = waves.real
        packed[n // 2 + 1 :] = -waves.imag[1 : (n + 1) // 2]
        packed *= self._halves(packed.ndim)
        return xp.moveaxis(packed, 0, self.place)

    def _real_backward(self, u: Any) -> Any:
        xp, n = self.arrays.xp, self.axis.n
        packed = xp.moveaxis(u, self.place, 0) / self._halves(u.ndim)
        waves = xp.zeros((n // 2 + 1, *packed.shape[1:]), complex)
        waves.real[...] = packed[: n // 2 + 1]
        waves.imag[1 : (n + 1) // 2] = -packed[n // 2 + 1 :]
        return self._call("irfft", xp.moveaxis(waves, 0, self.place), n=n)

    def _halves(self, ndim: int) -> Any:
        """Return the ratio of a complex coefficient's norm to that of its real wave: sqrt(2), and 1
        for the waves without a conjugate partner.
        """
        n = self.axis.n
        factors = np.full((n,) + (1,) * (ndim - 1), math.sqrt(2))
        factors[[0, n // 2] if n % 2 == 0 else [0]] = 1.0
        return self.arrays.xp.asarray(factors)


def chunks(n: int, points: int, most: int = _CHUNK_POINTS) -> Iterator[slice]:
    """Split range(n) into parts of at most `most` numbers, `points` each."""
    planes = max(1, most // max(1, points))
    for low in range(0, n, planes):
        yield slice(low, min(low + planes, n))


def _phase(b: float, theta: Numbers) -> Numbers:
    """Return the phase alpha of a face, from 0 (b = 1) to pi / 2 (b = -1)."""
    return np.arctan2((1 - b) * np.cos(theta / 2), (1 + b) * np.sin(theta / 2))


# A step u' = A u + f that can be treated axis by axis.


class NotSpectralError(Exception):
    """Raised with the reason why a problem has no exact spectral propagation."""


@dataclass(frozen=True, eq=False)
class Forcing:
    """The forcing f, which a step adds to any state.

    Attributes:
        values: of the grid, with few points along the axes on which only the distance from a face
            counts.
        places: per axis, the index in `values` of each point of the grid, (n,); None where `values`
            has every point.
    """

    values: Numbers
    places: tuple[npt.NDArray[np.int64] | None, ...]


@dataclass(frozen=True, eq=False)
class Separable:
    """A of constant coefficients: one function of the angles of all axes.

    Attributes:
        axes: of the grid.
        excess: sum of the weights, less 1.
        sums: eigenvalues of A - 1 per axis, (n,), of neighbours along that axis alone.
        products: (weight, order of the cosine per axis) of neighbours along several axes.
        forcing: None for none.
        continuous: whether A - 1 is dt times an operator of which jumps are exponentials.
    """

    axes: tuple[SpectralAxis, ...]
    excess: float
    sums: tuple[Numbers, ...]
    products: tuple[tuple[float, tuple[int, ...]], ...]
    forcing: Forcing | None
    continuous: bool = False


@dataclass(frozen=True, eq=False)
class Layered:
    """A of layers across one axis.

    Attributes:
        place: of that axis.
        axes: of the grid; that of the layers is not used.
        between: dt K of the faces below points along it, and above the last one, (n + 1,) [J/(m^3
            K)].
        ends: b of its faces; None if it is periodic.
        along: per axis dt K of the layers, (n,); of the layered axis zeros.
        capacity: rho c of the layers, (n,) [J/(m^3 K)].
        forcing: None for none.
    """

    place: int
    axes: tuple[SpectralAxis, ...]
    between: Numbers
    ends: Ends | None
    along: tuple[Numbers, ...]
    capacity: Numbers
    forcing: Forcing | None


Operator = Separable | Layered


def thin_forcing(problem: Problem, whole: int | None) -> Forcing | None:
    """Return the forcing where it depends only on the distance from faces, and on the position
    along at most one axis.

    Args:
        problem: whose step of zeros is the forcing.
        whole: the axis along which every point counts; None if there is none.
    """
    # A small grid stands for any larger one: `radius` points at either face, and one between them.
    shape, places = [], list[npt.NDArray[np.int64] | None]()
    for axis, (n, radius) in enumerate(zip(problem.grid.shape, problem.stencil.radii, strict=True)):
        few = 2 * radius + 1
        thin = axis != whole and n > few
        i = np.arange(n)
        shape.append(few if thin else n)
        places.append(
            np.clip(i, None, radius) + np.clip(i - (n - radius) + 1, 0, None) if thin else None
        )

    # The reference makes the step, so every kind of face is included.
    small = problem.on_shape(shape)
    values = advance(np.zeros((1, *shape)), small, 1)[0]
    return Forcing(values, tuple(places)) if values.any() else None
