"""cpu.spectral: jumps with SciPy's transforms and NumPy's matrix products on CPU threads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tetris_sim.cpu_kernels.common.threads import ThreadTeam
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.solvers.spectral.stepper import IntegratingMethod, SpectralMethod, as_substep


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


METHOD = SpectralMethod("cpu.spectral", "cpu", CpuArrays, CpuArrays.types)


def integrating(scheme: str) -> IntegratingMethod:
    """The method that integrates right-hand sides by a scheme."""
    return IntegratingMethod(scheme, "cpu", CpuArrays)
