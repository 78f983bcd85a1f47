"""The cost of reduced precision: the deviations of the Tetris paper's table 4, for more formats.

The case is the paper's: a square copper plate of 15 mm, insulated, a Gaussian of 100 degC in its
middle, CFL number 0.23. float64 and float32 are computed by a CPU method. TF32, bfloat16 and
float16 are emulated with NumPy as tensor-core methods compute them: what enters a product is
rounded to the format, to nearest; products are summed in float32; bfloat16 and float16 round the
result of every step once more, to store it. (Hardware rounds TF32 ties away from zero, and sums in
an order of its own: the same errors in size, not in every bit.) Methods that store float16 are
computed as well; their weights are float32, or, where steps are fused, float16 that keep their sum.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.config import make_config
from tetris_sim.gpu_kernels.fused.kernel import round_weights, without_bits
from tetris_sim.model import reference
from tetris_sim.model.method import STEPS_PER_BLOCK
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.verification.case import CaseSolver, finite_or_null, from_array

# Number formats of tensor cores, emulated: float32 rounded to TF32, bfloat16 and float16.


@dataclass(frozen=True)
class NumberFormat:
    """A binary floating-point format.

    Attributes:
        name: as it is called.
        digits: binary digits of the significand, the leading one included.
        stored: whether the state itself is kept in it; if not, only what enters a product is
            rounded to it.
    """

    name: str
    digits: int
    stored: bool = True

    def spacing(self, value: float) -> float:
        """Distance of neighbouring numbers at `value`, which is of normal size.

        >>> FLOAT16.spacing(100.0)
        0.0625
        """
        return math.ldexp(1.0, math.frexp(value)[1] - self.digits)

    def rounded(self, values: Field) -> npt.NDArray[np.float32]:
        """float32 values rounded to the format, to nearest, ties to even, as float32."""
        if self == FLOAT16:
            with np.errstate(over="ignore"):  # beyond 65504 is infinity, as in the hardware
                return values.astype(np.float16).astype(np.float32)
        return without_bits(np.asarray(values, dtype=np.float32), 24 - self.digits)


FLOAT64 = NumberFormat("float64", 53)
FLOAT32 = NumberFormat("float32", 24)
TF32 = NumberFormat("tf32", 11, stored=False)
BFLOAT16 = NumberFormat("bfloat16", 8)
FLOAT16 = NumberFormat("float16", 11)
EMULATED = (TF32, BFLOAT16, FLOAT16)


def rounded_stencil(stencil: Stencil, form: NumberFormat, *, balanced: bool) -> Stencil:
    """The stencil with weights of the format.

    Weights that are rounded one by one no longer sum to what they should: every step then
    multiplies the whole field.

    Args:
        stencil: with a weight at the point itself if `balanced`.
        form: of the weights.
        balanced: whether the point itself gets the weight that keeps the sum, rounded once too.
    """

    def as_format(weight: float) -> float:
        return float(form.rounded(np.array([weight], dtype=np.float32))[0])

    # Rounded one by one, as a tensor core would hold them.
    terms = {offset: as_format(weight) for offset, weight in stencil.terms.items()}
    if balanced:
        centre = (0,) * stencil.ndim
        others = math.fsum(weight for offset, weight in terms.items() if offset != centre)
        terms[centre] = as_format(math.fsum(stencil.weights) - others)
    return Stencil.from_terms(terms)


def sum_less_one(stencil: Stencil, dtype: np.dtype[Any] | None = None) -> float:
    """By how much the weights, rounded to `dtype` one by one, sum to more than 1."""
    weights = np.array(stencil.weights, dtype=dtype or np.float64)
    return math.fsum([*map(float, weights), -1.0])


ABSOLUTE = (0.1, 0.5, 1.0)  # degC
RELATIVE = (0.01, 0.03, 0.05)
# Table 4: shares [%] of the points whose float32 temperature is off by more than ABSOLUTE and
# RELATIVE.
PAPER_POINTS, PAPER_STEPS = 9600, 3_800_000
PAPER_FLOAT32 = (73.1, 17.2, 11.3, 62.1, 14.3, 0.2)
DEFAULT_POINTS = 256
# Share of points that a step leaves as they are, above which the field is called frozen.
_FROZEN = 0.5
_TOLD_GROWTH = 1e-3


@dataclass(frozen=True)
class Deviation:
    """How far the temperatures of one format are from those of float64.

    Attributes:
        name: of the format.
        computed_by: a method, or "emulated".
        absolute: shares of the points that are off by more than `ABSOLUTE`.
        relative: the same for `RELATIVE`.
        largest: largest deviation [degC].
        centre: temperature in the middle at the end [degC].
        weights_less_one: by how much the weights sum to more than 1.
        spacing: distance of neighbouring numbers at the highest temperature of the start [degC].
        unchanged: share of the points that the last step left as they were.
    """

    name: str
    computed_by: str
    absolute: tuple[float, ...]
    relative: tuple[float, ...]
    largest: float
    centre: float
    weights_less_one: float
    spacing: float
    unchanged: float

    @property
    def label(self) -> str:
        """Its name, and by what it was computed where that is not the usual for it."""
        real = self.name == FLOAT16.name and self.computed_by != "emulated"
        return f"{self.name} ({self.computed_by})" if real else self.name

    @property
    def frozen(self) -> bool:
        """Whether most points no longer change, though heat still flows."""
        return self.unchanged > _FROZEN


@dataclass(frozen=True)
class PrecisionCase:
    """The plate, and what float64 does to it.

    Attributes:
        points: along each edge.
        steps: time steps.
        time_s: simulated time [s].
        hottest: highest temperature of the start [degC].
        first_change: largest change of a point in the first step [degC].
        last_change: the same for the step after the last.
        centre: temperature in the middle at the end [degC].
    """

    points: int
    steps: int
    time_s: float
    hottest: float
    first_change: float
    last_change: float
    centre: float


def default_steps(points: int) -> int:
    """Steps that simulate as much time as the paper's 3.8e6 on 9600 x 9600 points.

    >>> default_steps(512)
    10809
    """
    return max(1, round(PAPER_STEPS * (points / PAPER_POINTS) ** 2))


def plate(points: int, steps: int, precision: str) -> Problem:
    """The paper's copper plate, by the same way as from a configuration."""
    return make_config(
        {
            "grid": {"shape": [points, points], "size": ["15 mm", "15 mm"]},
            "model": {"type": "heat", "material": "copper", "diffusivity": "1.11e-4 m^2/s"},
            "initial": {
                "type": "gaussian",
                "amplitude": "100 degC",
                "sigma": "2.15 mm",
                "background": "0 degC",
            },
            "boundaries": {"*": {"type": "neumann", "flux": 0}},
            "time": {"cfl": 0.23, "steps": steps},
            "compute": {"precision": precision},
        },
        environ={},
    ).build()


def compare(
    solver: CaseSolver,
    points: int,
    steps: int,
    *,
    balanced: bool = True,
    half: Sequence[CaseSolver] = (),
) -> tuple[PrecisionCase, Iterator[Deviation]]:
    """The case, and each format when it is asked for, the one with most digits first.

    Args:
        solver: for float64 and float32.
        points: along each edge of the plate.
        steps: time steps.
        balanced: whether emulated formats get weights that sum to 1 (see `rounded_stencil`).
        half: for float16 as methods store it.
    """
    problem = plate(points, steps, "float64")
    exact = solver(problem)
    start = problem.initial(Slab.whole(problem.grid))
    case = _case(problem, start, exact)

    def formats() -> Iterator[Deviation]:
        for precision in (FLOAT64, FLOAT32):
            rounded = plate(points, steps, precision.name)
            state = exact if precision == FLOAT64 else solver(rounded)
            still = state == reference.advance(state, rounded, 1)
            excess = sum_less_one(problem.stencil, np.dtype(precision.name))
            yield deviation(precision, solver.method.name, (state, exact, still), excess, case)

        for precision in EMULATED:
            stencil = rounded_stencil(problem.stencil, precision, balanced=balanced)
            state, before = emulate(start, dataclasses.replace(problem, stencil=stencil), precision)
            still = precision.rounded(state) == precision.rounded(before)
            yield deviation(
                precision, "emulated", (state, exact, still), sum_less_one(stencil), case
            )

        for other in half:
            yield _stored_in_half(other, exact, case)

    return case, formats()


def _stored_in_half(solver: CaseSolver, exact: Field, case: PrecisionCase) -> Deviation:
    """float16 by a method; what it leaves as it is, is found by one more launch."""
    problem = plate(case.points, case.steps, FLOAT16.name)
    computed = solver(problem)
    # Fused steps round once per launch, so a launch is what can leave points unchanged.
    together = max(1, solver.method.parameters(problem)[0].get(STEPS_PER_BLOCK, 1))
    after = solver(dataclasses.replace(problem, steps=together, initial=from_array(computed)))
    if together == 1:
        excess = sum_less_one(problem.stencil, problem.arithmetic)
    else:
        excess = sum_less_one(round_weights(problem.stencil.power(together))) / together
    return deviation(
        FLOAT16, solver.method.name, (computed, exact, computed == after), excess, case
    )


def emulate(start: Field, problem: Problem, precision: NumberFormat) -> tuple[Field, Field]:
    """The float32 states after the last step and before it, computed in a format.

    Args:
        start: (n_fields, n0, ...).
        problem: with weights of the format.
        precision: see `NumberFormat`.
    """
    # Operands are rounded, sums are kept in float32: what tensor cores do.
    u = before = precision.rounded(start.astype(np.float32))
    # Weights that do not sum to 1 may blow the field up.
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(problem.steps):
            before = u
            u = reference.step(
                precision.rounded(u), problem.stencil, problem.boundary, problem.grid.spacing
            )
            u = precision.rounded(u) if precision.stored else u
    return u, before


def notes(case: PrecisionCase, row: Deviation) -> Iterator[str]:
    """Explain one format to the reader of the table."""
    if row.frozen:
        yield (
            f"{row.label}: the field freezes. Numbers near {case.hottest:.0f} degC are "
            f"{row.spacing:.3g} degC apart, but a step changes no point by more than "
            f"{case.first_change:.2g} degC at first and {case.last_change:.2g} degC at the end; "
            f"the last step left {row.unchanged:.1%} of the points as they were"
        )

    factor = _growth(row.weights_less_one, case.steps)
    if abs(factor - 1) > _TOLD_GROWTH:
        yield (
            f"{row.label}: its weights sum to 1 {row.weights_less_one:+.2g}; if nothing else were "
            f"rounded, that would multiply all heat by {factor:.4g} in {case.steps} steps"
        )


def as_json(part: PrecisionCase | Deviation) -> dict[str, Any]:
    """Plain values; numbers that JSON cannot hold become null."""
    values = dataclasses.asdict(part)
    if isinstance(part, Deviation):
        values["frozen"] = part.frozen
    return finite_or_null(values)


def _case(problem: Problem, start: Field, exact: Field) -> PrecisionCase:
    changes = (np.abs(reference.advance(u, problem, 1) - u).max() for u in (start, exact))
    first, last = (float(change) for change in changes)
    points = problem.grid.shape[0]
    return PrecisionCase(
        points,
        problem.steps,
        problem.time(problem.steps),
        float(start.max()),
        first,
        last,
        _centre(exact),
    )


def deviation(
    precision: NumberFormat,
    computed_by: str,
    states: tuple[Field, Field, npt.NDArray[np.bool_]],
    excess: float,
    case: PrecisionCase,
) -> Deviation:
    """Compare `states`: computed, exact, and which points a step leaves as they are."""
    computed, exact, still = states
    computed = computed.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(computed - exact)

    # Not "error > bound": a NaN is off too.
    return Deviation(
        name=precision.name,
        computed_by=computed_by,
        absolute=tuple(float(np.mean(~(error <= bound))) for bound in ABSOLUTE),
        relative=tuple(float(np.mean(~(error <= bound * np.abs(exact)))) for bound in RELATIVE),
        largest=float(error.max()),
        centre=_centre(computed),
        weights_less_one=excess,
        spacing=precision.spacing(case.hottest),
        unchanged=float(np.mean(still)),
    )


def _growth(weights_less_one: float, steps: int) -> float:
    # (1 + e)^n by logarithms, which neither overflow nor lose e.
    exponent = steps * math.log1p(weights_less_one)
    return math.exp(exponent) if exponent < 700 else math.inf


def _centre(u: Field) -> float:
    """Temperature in the middle: that of the point there, or the mean of the four around it."""
    plane = u[0].astype(np.float64)
    low, high = ((n - 1) // 2 for n in plane.shape), (n // 2 + 1 for n in plane.shape)
    return float(plane[tuple(slice(a, b) for a, b in zip(low, high, strict=True))].mean())
