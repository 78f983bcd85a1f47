"""What holds for every correct method: translation, splits, conservation, the maximum principle."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Face, Fixed, Neumann, Periodic, Robin
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.verification.case import (
    SHAPES,
    Advance,
    Case,
    Outcome,
    from_array,
    make_problem,
    rounded_weights,
    rounding_per_step,
)

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


def invariant_cases() -> Iterator[Case]:
    """Translation, a split between workers, conservation and the maximum principle."""
    for name in _STENCILS:
        stencil = named_stencil(name).stencil
        yield Case(f"translation {name}", stencil.ndim, partial(_check_translation, stencil))

    for ndim, offset in _CARRIER.items():
        yield Case(
            "pure shift", ndim, partial(_check_shift, Stencil((offset,), (1.0,))), ("float64",)
        )

    for name in _STENCILS:
        stencil = named_stencil(name).stencil
        yield Case(f"two workers {name}", stencil.ndim, partial(_check_split, stencil))

    for name in _STENCILS:
        stencil = named_stencil(name).stencil
        for kind, face in (("insulated", Neumann()), ("periodic", Periodic())):
            yield Case(
                f"conservation {name}, {kind}", stencil.ndim, partial(_check_total, stencil, face)
            )

    for name in _POSITIVE:
        stencil = named_stencil(name).stencil
        yield Case(f"maximum principle {name}", stencil.ndim, partial(_check_range, stencil))


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
