"""Solvers on CPU threads: the passes of a solver over arrays in memory (`CpuArithmetic`), and jumps
and integrations with SciPy's transforms and NumPy's matrix products (`CpuArrays`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.solvers.krylov import Arithmetic, Cycle, LevelWork, cycle_of, in_single, largest_of
from tetris_sim.solvers.multigrid import (
    GridLevel,
    Operator,
    Places,
    Shares,
    Widths,
    coarsen,
    every_other,
)
from tetris_sim.solvers.spectral.stepper import IntegratingMethod, SpectralMethod, as_substep
from tetris_sim.solvers.stepper import SolvingMethod


class CpuArrays:
    """NumPy on a team of threads; see the Protocol `DeviceArrays`.

    Matrix products use as many threads as the BLAS of NumPy takes.
    """

    xp: Any = np
    types = frozenset({1, 2, 3, 4})

    def __init__(self, team: ThreadTeam) -> None:
        import scipy.fft

        self.fft: Any = scipy.fft
        self.options: dict[str, Any] = {"workers": team.size}
        self._team = team

    def each(self, parts: Sequence[slice], work: Callable[[slice], None]) -> None:
        """Every thread takes its share of the parts."""

        def serve(thread: int) -> None:
            for part in parts[thread :: self._team.size]:
                work(part)

        self._team.run(serve)

    def use(self) -> contextlib.AbstractContextManager[Any]:
        """There is only one host."""
        return contextlib.nullcontext()

    def on_host(self, array: Any) -> Field:
        """A copy."""
        return np.array(array)

    def rates(self, problem: Problem) -> Callable[[Any, float], Any]:
        """Right-hand sides by the sweeps of `cpu.plain`."""
        from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod

        stepper = CpuPlainMethod().prepare(
            as_substep(problem), Slab.whole(problem.grid), {}, self._team
        )

        def of(u: Any, time: float) -> Any:
            stepper.load(lambda slab: u[(slice(None), *(slice(*span) for span in slab.spans))])
            stepper.substep(time, 0.0)
            return stepper.interior()

        return of

    def wait(self) -> None:
        """Nothing is under way between two calls."""

    def release(self) -> None:
        """Memory goes back by itself."""


SPECTRAL = SpectralMethod("cpu.spectral", "cpu", CpuArrays, CpuArrays.types)


def integrating(scheme: str) -> IntegratingMethod:
    """The method that integrates right-hand sides by a scheme."""
    return IntegratingMethod(scheme, "cpu", CpuArrays)


Values = npt.NDArray[Any]
_TINY = 1e-30  # of a diagonal, relative to the largest
_ALONE = 1 << 15  # points that one thread is done with before others have woken up


@functools.cache
def _sweeps() -> ModuleType:
    from tetris_sim.cpu_kernels.compiled.generate import copied_module

    return copied_module("solve/sweeps.py")


class CpuArithmetic:
    """Arithmetic of the linear solvers on the CPU; arrays are (n0, n1, n2), float64 or float32.

    Attributes:
        xp: the module of the arrays.
    """

    xp = np

    def __init__(self, team: ThreadTeam) -> None:
        self._team = team

    def use(self) -> contextlib.AbstractContextManager[None]:
        """There is only one host."""
        return contextlib.nullcontext()

    def release(self) -> None:
        """Memory goes back by itself."""

    def share(self, n: int, work: Callable[[int], None]) -> None:
        """Call work(0) to work(n - 1), each by one thread."""

        def task(thread: int) -> None:
            for number in self._team.split(n, thread):
                work(number)

        self._team.run(task)

    def coarsen(
        self, operator: Operator, axis: int, xp: Any, places: Places | None = None
    ) -> tuple[Operator, Shares]:
        """See `multigrid.coarsen`."""
        return coarsen(operator, axis, xp, places)

    def level(self, level: GridLevel) -> CpuLevel:
        """A level where it is worked on."""
        return CpuLevel(level, self)

    def cycle(self, operator: Operator, widths: Widths = ()) -> Cycle:
        """All levels, in memory."""
        return cycle_of(in_single(operator, largest_of(operator)), self, widths)

    def norm(self, r: Values) -> float:
        """The root of the sum of r^2."""
        return math.sqrt(self.product(r, r))

    def record(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return the work unchanged: a CPU has no command graph to record into."""
        return work

    def relax(self, operator: Operator, f: Values, u: Values, weight: float, out: Values) -> None:
        """Out = u + weight (f - A u) / diagonal."""
        self._planes(
            "relax", out, _flat(operator), _line(f), _line(u), _real(weight, u), _line(out)
        )

    def begin(self, operator: Operator, f: Values, weight: float, out: Values) -> None:
        """`relax` of u = 0."""
        self._planes("begin", out, _flat(operator), _line(f), _real(weight, f), _line(out))

    def residual(self, operator: Operator, f: Values, u: Values, out: Values) -> None:
        """Out = f - A u."""
        self._planes("residual", out, _flat(operator), _line(f), _line(u), _line(out))

    def apply(self, operator: Operator, u: Values, out: Values) -> float:
        """Out = A u; the sum of u out."""
        # Sums by plane, added exactly by `fsum`: the same bits for any number of threads.
        sums = np.zeros(len(out))
        self._planes("apply", out, _flat(operator), _line(u), _line(out), sums)
        return math.fsum(sums)

    def restrict(
        self,
        axis: int,
        fine: Values,
        shares: tuple[Values, Values],
        out: Values,
        places: Places | None = None,
    ) -> None:
        """Out = what points of kept planes across an axis weigh, with shares of those between."""
        n, (low, high) = fine.shape[axis], shares
        places = every_other(n) if places is None else places
        arrays = (_line(fine), _line(low), _line(high), _line(out))
        if axis == 2:
            lines = out.shape[0] * out.shape[1]
            self._share("restrict_line", out, lines, n, places, *arrays)
        else:
            rows = math.prod(out.shape[: axis + 1])
            self._share("restrict_rows", out, rows, n, out.size // rows, places, *arrays)

    def prolong(
        self,
        axis: int,
        coarse: Values,
        shares: tuple[Values, Values],
        out: Values,
        places: Places | None = None,
    ) -> None:
        """Out += coarse, and its shares between."""
        n, (low, high) = out.shape[axis], shares
        places = every_other(n) if places is None else places
        arrays = (_line(coarse), _line(low), _line(high), _line(out))
        if axis == 2:
            lines = out.shape[0] * out.shape[1]
            self._share("prolong_line", out, lines, n, places, *arrays)
        else:
            rows = math.prod(coarse.shape[: axis + 1])
            self._share("prolong_rows", out, rows, n, coarse.size // rows, places, *arrays)

    def descend(self, length: float, q: Values, r: Values, small: Values) -> float:
        """R -= length q, small = r; the sum of r^2."""
        sums = np.zeros(len(r))
        lines = [_line(it) for it in (q, r, small)]
        self._share("descend", small, len(r), r[0].size, length, *lines, sums)
        return math.fsum(sums)

    def product(self, u: Values, v: Values) -> float:
        """The sum of u v."""
        sums = np.zeros(len(u))
        self._share("multiply", u, len(u), u[0].size, _line(u), _line(v), sums)
        return math.fsum(sums)

    def project(self, z: Values, q: Values, r: Values) -> tuple[float, float]:
        """The sums of z q and of z r."""
        sums = np.zeros((2, len(z)))
        lines = [_line(it) for it in (z, q, r)]
        self._share("project", z, len(z), z[0].size, *lines, *sums)
        return math.fsum(sums[0]), math.fsum(sums[1])

    def turn(self, z: Values, share: float, length: float, p: Values, u: Values) -> None:
        """U += length p, p = z + share p."""
        self._share("turn", z, len(z), z[0].size, _line(z), share, length, _line(p), _line(u))

    def _planes(self, name: str, like: Values, *arguments: Any) -> None:
        self._share(name, like, len(like), like.shape, *arguments)

    def _share(self, name: str, like: Values, parts: int, *arguments: Any) -> None:
        """Let threads call a pass for parts of the whole."""
        work: Callable[..., None] = getattr(_sweeps(), name)
        # Waking the team would take longer than the pass itself.
        if like.size < _ALONE or self._team.size == 1:
            work(0, parts, *arguments)
            return

        def task(thread: int) -> None:
            mine = self._team.split(parts, thread)
            work(mine.start, mine.stop, *arguments)

        self._team.run(task)


class CpuLevel:
    """A level in memory: what is asked of it is done pass by pass.

    Attributes:
        points: how many it has.
        f: right-hand side.
        u: what solves it, about.
        reached_f: the part of f that a finer level gives.
        reached_u: the part of u that a finer level takes.
    """

    def __init__(self, level: GridLevel, arithmetic: CpuArithmetic) -> None:
        self._level, self._device = level, arithmetic
        self.points = math.prod(level.shape)
        self.f, self.u, self._v = (np.zeros(level.shape, np.float32) for _ in range(3))
        self.reached_f, self.reached_u = self.f[level.reached], self.u[level.reached]
        self._through_u, self._through_v = self.u[level.through], self._v[level.through]
        self._between = [np.zeros(it, np.float32) for it in level.between[1:-1]]

    def begin(self, weights: tuple[float, float]) -> None:
        """Two Jacobi steps from u = 0."""
        self._device.begin(self._level.operator, self.f, weights[0], self._v)
        self._device.relax(self._level.operator, self.f, self._v, weights[1], self.u)

    def smooth(self, weights: tuple[float, float]) -> None:
        """Two Jacobi steps."""
        self._device.relax(self._level.operator, self.f, self.u, weights[0], self._v)
        self._device.relax(self._level.operator, self.f, self._v, weights[1], self.u)

    def restrict(self, coarse: LevelWork) -> None:
        """Make what is left of f the right-hand side of the next coarser level."""
        # The residual goes to the scratch array, then is restricted axis by axis.
        self._device.residual(self._level.operator, self.f, self.u, self._v)
        fields = itertools.pairwise([self._through_v, *self._between, coarse.reached_f])
        ways = zip(self._level.moves, fields, self._level.places, strict=True)
        for (axis, shares), (fine, out), places in ways:
            self._device.restrict(axis, fine, shares, out, places)

    def correct(self, coarse: LevelWork) -> None:
        """Add what the next coarser level found."""
        # Prolongation adds to its target, so the intermediate levels begin at 0.
        for it in self._between:
            it[:] = 0
        fields = itertools.pairwise([self._through_u, *self._between, coarse.reached_u])
        ways = list(zip(self._level.moves, fields, self._level.places, strict=True))
        for (axis, shares), (fine, given), places in reversed(ways):
            self._device.prolong(axis, given, shares, fine, places)

    def solve(self) -> None:
        """U = f / d, of a single point; 0 without a d."""
        d = self._level.operator[-1]
        self.u[:] = self.f / d if float(d.max()) > _TINY else 0.0


def _line(values: Values) -> Values:
    return values.reshape(-1)


def _flat(operator: Operator) -> Operator:
    return tuple(it.reshape(-1) for it in operator)


def _real(number: float, like: Values) -> Any:
    return like.dtype.type(number)


# cpu.steady, cpu.implicit: states that are solved for with the passes of `sweeps.py`.

# By point, at most: of the balance, of conjugate gradients, of all levels, and of what is needed to
# make these.
_BYTES = 260
_PLAIN = (150, 0)  # without held cells or heat contents


def _arithmetic(team: Any) -> Arithmetic:

    return CpuArithmetic(team)


STEADY = SolvingMethod("cpu.steady", "cpu", _arithmetic, "steady", _BYTES, plain=_PLAIN)
IMPLICIT = SolvingMethod("cpu.implicit", "cpu", _arithmetic, "implicit", _BYTES)
