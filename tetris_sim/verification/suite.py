"""Every verification case, with every method of this machine, one result after the other; and the
invariants of every correct method: translation, splits, conservation, the maximum principle.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tetris_sim import cpu_kernels
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Dirichlet, Face, Fixed, Neumann, Periodic, Robin
from tetris_sim.model.method import Method
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.machine.machine import Machine, find_machine
from tetris_sim.scheduler.machine.placement import every_method
from tetris_sim.verification.bodies import wall_cases
from tetris_sim.verification.case import (
    SHAPES,
    Advance,
    CaseSolver,
    Outcome,
    RefusalError,
    VerificationCase,
    finite_or_null,
    from_array,
    make_problem,
    rounded_weights,
    rounding_per_step,
    solution_cases,
)
from tetris_sim.verification.heated import heated_cases, melting_cases

# Discrete eigenmodes: on each kind of face a wave decays by exactly the stencil's growth factor.
#
# A stencil multiplies the wave exp(i theta.j) by its symbol. With periodic faces any wave that fits
# the grid is such a mode. The reflections u -> -u (Dirichlet 0) and u -> u (insulated) about a face
# half a spacing outside the first point continue sin(theta (j + 1/2)) and cos(theta (j + 1/2)), so
# that products of those are modes of every stencil that is symmetric along each axis. Nothing is
# discretised further: the only error is rounding.

_WAVES = (2, 3, 1)  # periods, or half periods, along each axis
# Many steps, but not so many that nothing of the wave is left to be compared.
_MOST_STEPS, _LEAST_AMPLITUDE = 60, 0.1
_WAVE_STENCILS = (
    "heat-1d",
    "star-1d5p",
    "heat-2d",
    "star-2d9p",
    "box-2d25p",
    "heat-3d",
    "box-3d27p",
)

# A stencil without any symmetry: it carries the wave along, and every mix-up of sides or axes
# shows.
_SKEW = Stencil(((0, 0), (0, 1), (-1, 0), (2, -1)), (0.4, 0.3, 0.2, 0.1))

_FACES: dict[str, tuple[Face, Face]] = {
    "dirichlet": (Dirichlet(0.0), Dirichlet(0.0)),
    "insulated": (Neumann(), Neumann()),
    "mixed": (Dirichlet(0.0), Neumann()),
}


def mode_cases() -> Iterator[VerificationCase]:
    """Every kind of face for several stencils."""
    for name in _WAVE_STENCILS:
        stencil = named_stencil(name).stencil
        yield VerificationCase(
            f"wave {name}, periodic", stencil.ndim, partial(_check_wave, stencil)
        )
        for kind in _FACES:
            yield VerificationCase(
                f"mode {name}, {kind}", stencil.ndim, partial(_check_mode, stencil, kind)
            )
    yield VerificationCase("wave of a skew stencil, periodic", 2, partial(_check_wave, _SKEW))


def _check_wave(stencil: Stencil, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    shape = SHAPES[stencil.ndim]
    theta = np.array([2 * math.pi * wave / n for wave, n in zip(_WAVES, shape, strict=False)])

    def phase(slab: Slab) -> npt.NDArray[np.float64]:
        return np.asarray(sum(t * index for t, index in zip(theta, _indices(slab), strict=True)))

    def initial(slab: Slab) -> Field:
        return np.cos(phase(slab))[np.newaxis].astype(dtype)

    boundary = Boundary.everywhere(Periodic(), stencil.ndim)
    problem = make_problem(
        stencil, boundary, initial, dtype=dtype, steps=_count_steps(stencil, theta)
    )
    factor = complex(rounded_weights(problem).symbol(theta)) ** problem.steps
    exact = (factor * np.exp(1j * phase(Slab.whole(problem.grid)))).real
    return _outcome(problem, advance(problem), exact)


def _check_mode(stencil: Stencil, kind: str, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    shape = SHAPES[stencil.ndim]
    waves = [wave + 0.5 if kind == "mixed" else wave for wave in _WAVES[: stencil.ndim]]
    theta = np.array([math.pi * wave / n for wave, n in zip(waves, shape, strict=True)])
    shape_of = np.cos if kind == "insulated" else np.sin

    def product(slab: Slab) -> npt.NDArray[np.float64]:
        factors = [
            shape_of(t * (index + 0.5)) for t, index in zip(theta, _indices(slab), strict=True)
        ]
        return np.asarray(math.prod(factors[1:], start=factors[0]))

    def initial(slab: Slab) -> Field:
        return product(slab)[np.newaxis].astype(dtype)

    boundary = Boundary((_FACES[kind],) * stencil.ndim)
    problem = make_problem(
        stencil, boundary, initial, dtype=dtype, steps=_count_steps(stencil, theta)
    )
    factor = float(rounded_weights(problem).symbol(theta).real) ** problem.steps
    exact = factor * product(Slab.whole(problem.grid))
    return _outcome(problem, advance(problem), exact)


def _count_steps(stencil: Stencil, theta: npt.NDArray[np.float64]) -> int:
    rate = -math.log(abs(complex(stencil.symbol(theta))))
    return max(3, min(_MOST_STEPS, math.floor(-math.log(_LEAST_AMPLITUDE) / rate)))


def _indices(slab: Slab) -> list[npt.NDArray[np.float64]]:
    """Global index per axis, shaped to broadcast."""
    ndim = len(slab.start)
    return [
        np.arange(start, stop, dtype=np.float64).reshape(
            [-1 if k == axis else 1 for k in range(ndim)]
        )
        for axis, (start, stop) in enumerate(zip(slab.start, slab.stop, strict=True))
    ]


def _outcome(problem: Problem, computed: Field, exact: npt.NDArray[np.float64]) -> Outcome:
    """Compare with the exact decay: the initial state was rounded once, and every step rounds."""
    error = float(np.abs(computed[0].astype(np.float64) - exact).max())
    eps = float(np.finfo(problem.dtype).eps)
    return Outcome(error, eps + problem.steps * rounding_per_step(problem))


_STEPS = 50
_SHIFT = (5, -7, 3)
_CARRIER = {1: (3,), 2: (-1, 2), 3: (1, -2, 1)}  # offset of the stencil that only moves
_STENCILS = ("heat-1d", "star-2d9p", "box-2d25p", "heat-3d", "box-3d27p")
_POSITIVE = ("heat-1d", "heat-2d", "box-2d25p", "box-3d27p")
# A fixed ring and weak convection pull towards values between 0 and 1: ghosts are averages of those
# and mirror points.
_MIXED: tuple[tuple[Face, Face], ...] = (
    (Robin(h=0.7, ambient=0.25), Neumann()),
    (Fixed(0.75), Robin(h=1.5, ambient=1.0)),
    (Periodic(), Periodic()),
)


def invariant_cases() -> Iterator[VerificationCase]:
    """Translation, a split between workers, conservation and the maximum principle."""
    for name in _STENCILS:
        stencil = named_stencil(name).stencil
        yield VerificationCase(
            f"translation {name}", stencil.ndim, partial(_check_translation, stencil)
        )

    for ndim, offset in _CARRIER.items():
        yield VerificationCase(
            "pure shift", ndim, partial(_check_shift, Stencil((offset,), (1.0,))), ("float64",)
        )

    for name in _STENCILS:
        stencil = named_stencil(name).stencil
        yield VerificationCase(f"two workers {name}", stencil.ndim, partial(_check_split, stencil))

    for name in _STENCILS:
        stencil = named_stencil(name).stencil
        for kind, face in (("insulated", Neumann()), ("periodic", Periodic())):
            yield VerificationCase(
                f"conservation {name}, {kind}", stencil.ndim, partial(_check_total, stencil, face)
            )

    for name in _POSITIVE:
        stencil = named_stencil(name).stencil
        yield VerificationCase(
            f"maximum principle {name}", stencil.ndim, partial(_check_range, stencil)
        )


def _random_state(ndim: int, dtype: np.dtype[Any]) -> Field:
    return np.random.default_rng(ndim).uniform(0.0, 1.0, (1, *SHAPES[ndim])).astype(dtype)


def _torus(stencil: Stencil, state: Field) -> Problem:
    boundary = Boundary.everywhere(Periodic(), stencil.ndim)
    return make_problem(stencil, boundary, from_array(state), dtype=state.dtype, steps=_STEPS)


def _check_translation(stencil: Stencil, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    state, shift = _random_state(stencil.ndim, dtype), _SHIFT[: stencil.ndim]
    axes = tuple(range(1, stencil.ndim + 1))
    problem = _torus(stencil, state)
    shifted = advance(_torus(stencil, np.roll(state, shift, axes)))
    error = float(np.abs(shifted - np.roll(advance(problem), shift, axes)).max())
    return Outcome(error, 0.0 if advance.stepwise else reference.tolerance(problem, _STEPS, 1.0))


def _check_shift(stencil: Stencil, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    state = _random_state(stencil.ndim, dtype)
    moved = tuple(-_STEPS * component for component in stencil.offsets[0])
    expected = np.roll(state, moved, tuple(range(1, stencil.ndim + 1)))
    return Outcome(float(np.abs(advance(_torus(stencil, state)) - expected).max()), 0.0)


def _check_split(stencil: Stencil, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    state = _random_state(stencil.ndim, dtype)
    boundary = Boundary(_MIXED[: stencil.ndim])
    problem = make_problem(stencil, boundary, from_array(state), dtype=dtype, steps=_STEPS)
    return Outcome(float(np.abs(advance(problem, workers=2) - advance(problem)).max()), 0.0)


def _drift_per_step(problem: Problem) -> float:
    """By how much one step can change a total or an extreme of 1 that should stay."""
    return abs(math.fsum(rounded_weights(problem).weights) - 1) + rounding_per_step(problem)


def _check_total(stencil: Stencil, face: Face, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    state = _random_state(stencil.ndim, dtype)
    boundary = Boundary.everywhere(face, stencil.ndim)
    problem = make_problem(stencil, boundary, from_array(state), dtype=dtype, steps=_STEPS)
    before, after = (math.fsum(map(float, values.ravel())) for values in (state, advance(problem)))
    return Outcome(abs(after - before) / state.size, _STEPS * _drift_per_step(problem))


def _check_range(stencil: Stencil, advance: Advance, dtype: np.dtype[Any]) -> Outcome:
    # Zeros and ones at random: the roughest state there is.
    state = (_random_state(stencil.ndim, dtype) > 0.5).astype(dtype)
    boundary = Boundary(_MIXED[: stencil.ndim])
    problem = make_problem(stencil, boundary, from_array(state), dtype=dtype, steps=_STEPS)
    state = advance(problem).astype(np.float64)
    outside = max(float(-state.min()), float(state.max() - 1), 0.0)
    return Outcome(outside, _STEPS * _drift_per_step(problem))


# One case of a kind, in two dimensions or one, and of bodies what shares kernels: compiling takes
# nearly all of the time.
_QUICK = (
    ("wave heat-2d, periodic", 2),
    ("mode heat-2d, mixed", 2),
    ("convective cooling, series solution", 2),
    ("composite wall", 1),  # with the kernels of the next one
    ("NAFEMS T3, varying temperature", 1),
    ("chip with a power trace", 2),
    ("Stefan, two phases", 1),
)

Verdict = Literal["pass", "FAIL", "refused"]


@dataclass(frozen=True)
class VerificationResult:
    """One case with one method in one precision.

    Attributes:
        case: its name.
        ndim: number of axes.
        method: by which it was computed.
        dtype: in which precision.
        verdict: pass, FAIL, or refused if the method does not do such problems.
        outcome: the numbers; None if there are none.
        note: why there are none.
    """

    case: str
    ndim: int
    method: str
    dtype: str
    verdict: Verdict
    outcome: Outcome | None = None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain values for --json; numbers that JSON cannot hold become null."""
        numbers = dataclasses.asdict(self.outcome) if self.outcome is not None else {}
        return {**dataclasses.asdict(self), "outcome": finite_or_null(numbers) or None}


@functools.cache
def all_cases() -> tuple[VerificationCase, ...]:
    """Every case, in the order of the table."""
    return (
        *mode_cases(),
        *invariant_cases(),
        *solution_cases(),
        *wall_cases(),
        *heated_cases(),
        *melting_cases(),
    )


def quick_cases() -> tuple[VerificationCase, ...]:
    """One case of a kind, in double precision."""
    return tuple(
        dataclasses.replace(case, precisions=("float64",))
        for case in all_cases()
        if (case.name, case.ndim) in _QUICK
    )


def choose_methods(name: str | None) -> tuple[Method, ...]:
    """The method of that name, or all of this machine's.

    Raises:
        ConfigError: there is no such method.
    """
    here = every_method() if find_machine().gpus else cpu_kernels.METHODS
    chosen = tuple(method for method in here if name in (None, method.name))
    if not chosen:
        names = ", ".join(method.name for method in here)
        msg = f"--method {name} is not one of this machine's methods: {names}"
        raise ConfigError(msg)
    return chosen


def verify(
    methods: tuple[Method, ...], cases: tuple[VerificationCase, ...], machine: Machine | None = None
) -> Iterator[VerificationResult]:
    """Compute the cases; each result is given as soon as it is there.

    Args:
        methods: with each of them.
        cases: what to compute.
        machine: on what; this machine if not given.
    """
    machine = machine or find_machine()
    for method in methods:
        solver = CaseSolver(method, machine)
        for case in cases:
            for precision in case.precisions:
                yield _result(case, solver, precision)


def _result(case: VerificationCase, solver: CaseSolver, precision: str) -> VerificationResult:
    about = (case.name, case.ndim, solver.method.name, precision)
    try:
        outcome = case.check(solver, np.dtype(precision))
    except RefusalError as refusal:
        return VerificationResult(*about, "refused", note=str(refusal))
    except UnsupportedError as error:  # it disagrees with the reference already on the trial piece
        return VerificationResult(*about, "FAIL", note=str(error))
    return VerificationResult(*about, "pass" if outcome.passed else "FAIL", outcome)
