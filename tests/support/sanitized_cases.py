"""One case of each GPU kernel, to be run under `compute-sanitizer`: `python
tests/support/sanitized_cases.py`.

Constant stencils, also in pairs of floats and with weights that mirror, bodies of palettes, heat contents and coefficients, equations, and the solver of
steady states and implicit steps. Grids are
odd and just large enough for a fused kernel, the frame around it and a single step. Every answer is
compared with the reference, or with the CPU's solution, so that a kernel that was not launched is
no clean one.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tests.gpu.test_gpu_changing_faces import body as changing_body  # noqa: E402
from tests.gpu.test_gpu_changing_faces import changing  # noqa: E402
from tests.gpu.test_gpu_coefficients import body  # noqa: E402
from tests.gpu.test_gpu_solve import solutions  # noqa: E402
from tests.support import gpu_equation_cases as equation_cases  # noqa: E402
from tests.support.cases import boundary_of, dtype_of, make_problem, run, stencil_of  # noqa: E402
from tests.support.conduction_cases import RADIATION, Case, beam, closed, heating, mixed_faces  # noqa: E402
from tests.support.enthalpy_cases import cooled_body  # noqa: E402
from tests.support.variants import VARIANTS, agrees  # noqa: E402
from tetris_sim.gpu_kernels import METHODS  # noqa: E402
from tetris_sim.gpu_kernels.common.device import GpuDevice  # noqa: E402
from tetris_sim.model import reference  # noqa: E402
from tetris_sim.model.method import STEPS_PER_BLOCK, Method, Parameters, ReducedPrecision, roundings  # noqa: E402
from tetris_sim.model.problem import Problem  # noqa: E402
from tetris_sim.model.slab import Slab  # noqa: E402

NAMES = ("star-1d5p", "heat-2d", "box-2d9p", "heat-3d", "box-3d27p")
SHAPES = {1: (1201,), 2: (103, 151), 3: (23, 25, 131)}


def main() -> int:
    """Run all cases; the number of those that failed."""
    device: Any = GpuDevice(0)
    failed = 0
    for name in NAMES:
        stencil = stencil_of(name)
        for method in METHODS:
            dtypes = {
                dtype_of(method, stencil),
                *(("float16",) if method.name == "gpu.plain" else ()),
            }
            failed += sum(
                fails(method, case_of(name, dtype, method, mirrored=mirrored), device)
                for dtype in sorted(dtypes)
                for mirrored in {False, name.startswith("box")}
            )
    for name, variant in VARIANTS.items():
        agrees(variant, stencil_of("box-2d9p"), boundary_of("walls", 2), (41, 197), device)
        sys.stdout.write(f"{name}: agrees\n")
    for name, problem in (*bodies().items(), *equations().items()):
        for method in METHODS:
            if method.refusal(problem) is None:
                failed += sum(
                    differs(method, name, problem, parameters, device)
                    for parameters in one_of_each(method, problem)
                )
    for scheme in ("steady", "implicit"):
        failed += solves_otherwise(scheme, device)
    device.close()
    return failed


def bodies() -> dict[str, Problem]:
    """Palettes, faces and sources by formulas, heat contents, coefficients."""
    plate, block = SHAPES[2], (17, 19, 61)
    heated = heating(5, changes=True)
    cases = {
        "palette": Case("", plate, 5, mixed_faces, heated),
        "palette, float32": Case("", plate, 16, closed, dtype=np.float32),
        "palette, no sources": Case("", plate, 5, mixed_faces),
        "palette, beam": Case("", plate, 3, closed, beam()),
        "palette, 3D": Case("", block, 5, mixed_faces, heated),
        "palette, 1D": Case("", (203,), 3, mixed_faces, heating(3, changes=True)),
        "radiation": RADIATION[1],
    }
    courses = (changing(0.0), changing(0.5, jumps_at=0.1))
    return {
        **{name: case.problem() for name, case in cases.items()},
        **{f"faces that change, {n}D": changing_body([courses] * n) for n in (1, 2, 3)},
        "heat contents": cooled_body(plate),
        "heat contents, 3D": cooled_body((9, 11, 13)),
        "coefficients": body(plate, mixed_faces),
        "coefficients, float32": body(plate, mixed_faces, np.float32),
        "coefficients, 3D": body((9, 11, 13), mixed_faces),
    }


def equations() -> dict[str, Problem]:
    """Several fields, stages that are read beside their points, corners; in 1, 2 and 3 dimensions."""
    make, walls = equation_cases.make, equation_cases.walls
    fields = equation_cases.gray_scott
    return {
        "two fields": make(fields(2, walls(2), walls(2, 0.1)), SHAPES[2]),
        "two fields, float32": make(fields(2, walls(2), walls(2, 0.1)), SHAPES[2], np.float32),
        "two fields, 1D": make(fields(1, walls(1)), (203,)),
        "two fields, 3D": make(fields(3, walls(3)), (9, 11, 13)),
        "fourth order": make(equation_cases.cahn_hilliard(2, walls(2)), SHAPES[2]),
        "stages": make(equation_cases.wave(2, equation_cases.ring(2)), SHAPES[2]),
        "corners": make(equation_cases.corners(walls(2)), SHAPES[2]),
    }


def one_of_each(method: Method, problem: Problem) -> Iterator[Parameters]:
    """Of each scheme and way to store and fetch that a method proposes, the fewest steps at once."""

    def kind(choice: Parameters) -> tuple[int, int]:
        return choice.get("scheme", 0), choice.get("interleaved", 0)

    proposals = sorted(method.parameters(problem), key=kind)
    for _, alike in itertools.groupby(proposals, key=kind):
        yield min(alike, key=lambda choice: choice.get(STEPS_PER_BLOCK, 1))


def differs(
    method: Method, name: str, problem: Problem, parameters: Parameters, device: Any
) -> bool:
    """Whether a block of steps and one more are wrong."""
    steps = (parameters.get(STEPS_PER_BLOCK, 1), 1)
    state = problem.initial(Slab.whole(problem.grid))
    wanted = reference.advance(state, problem, sum(steps))
    eps = float(np.finfo(problem.arithmetic).eps)
    allowed = 10 * sum(steps) * eps * float(np.abs(wanted).max())
    error = float(np.abs(run(method, problem, parameters, device, steps) - wanted).max())
    sys.stdout.write(
        f"{method.name} {name} {dict(parameters)}: error {error:.1e}, allowed {allowed:.1e}\n"
    )
    return not error <= allowed


def case_of(name: str, dtype: str, method: Method, *, mirrored: bool) -> Problem:
    """A stencil between walls, in pairs of floats for methods that compute in them."""
    stencil = stencil_of(name)
    walls = boundary_of("walls", stencil.ndim)
    shape = SHAPES[stencil.ndim]
    problem, _ = make_problem(stencil, walls, dtype=dtype, shape=shape, mirrored=mirrored)
    return replace(problem, pairs=isinstance(method, ReducedPrecision))


def fails(method: Method, problem: Problem, device: Any) -> bool:
    """Whether the fewest steps at once and one more are wrong; not if it refuses the problem."""
    name = f"{method.name} {problem.stencil.n_points} points, {problem.grid.ndim}D"
    if (why_not := method.refusal(problem)) is not None:
        sys.stdout.write(f"{name} refused: {why_not}\n")
        return method.name != "gpu.resident"  # the only one that is for some of them
    state, wrong = problem.initial(Slab.whole(problem.grid)), False
    for parameters in one_of_each(method, problem):
        steps = (parameters.get(STEPS_PER_BLOCK, 1), 1)
        wanted = reference.advance(state, problem, sum(steps))
        largest = reference.largest_magnitude(state, problem)
        allowed = roundings(method, problem.dtype) * reference.tolerance(
            problem, sum(steps), largest
        )
        error = float(np.abs(run(method, problem, parameters, device, steps) - wanted).max())
        sys.stdout.write(
            f"{name} {problem.dtype} {dict(parameters)}: error {error:.1e}, allowed {allowed:.1e}\n"
        )
        wrong |= not error <= allowed
    return wrong


def solves_otherwise(scheme: Any, device: Any) -> bool:
    """Whether the solver ends elsewhere than on a CPU."""
    found = solutions(scheme, (9, 14, 37), device)
    allowed = 1e-8 * float(np.abs(found[0]).max())
    error = float(np.abs(found[1] - found[0]).max())
    sys.stdout.write(f"gpu {scheme}: error {error:.1e}, allowed {allowed:.1e}\n")
    return not error <= allowed


if __name__ == "__main__":
    sys.exit(main())
