"""One case of each GPU kernel, to be run under `compute-sanitizer`: `python
tests/gpu/sanitized_cases.py`.

Grids are odd and just large enough for a fused kernel, the frame around it and a single step. Every
answer is compared with the reference, so that a kernel that was not launched is no clean one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / name) for name in (".", "kernels", "gpu"))]

from cases import boundary_of, dtype_of, make_problem, run, stencil_of  # noqa: E402
from variants import VARIANTS, agrees  # noqa: E402

from tetris_sim import reference  # noqa: E402
from tetris_sim.gpu_kernels import METHODS  # noqa: E402
from tetris_sim.gpu_kernels.common.device import GpuDevice  # noqa: E402
from tetris_sim.method import STEPS_PER_BLOCK, Method  # noqa: E402

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
            failed += sum(fails(method, name, dtype, device) for dtype in sorted(dtypes))
    for name, variant in VARIANTS.items():
        agrees(variant, stencil_of("box-2d9p"), boundary_of("walls", 2), (41, 197), device)
        sys.stdout.write(f"{name}: agrees\n")
    device.close()
    return failed


def fails(method: Method, name: str, dtype: str, device: Any) -> bool:
    """Whether the fewest steps at once and one more are wrong."""
    stencil = stencil_of(name)
    problem, state = make_problem(
        stencil, boundary_of("walls", stencil.ndim), dtype=dtype, shape=SHAPES[stencil.ndim]
    )
    assert method.refusal(problem) is None
    parameters = min(method.parameters(problem), key=lambda choice: choice.get(STEPS_PER_BLOCK, 1))
    steps = (parameters.get(STEPS_PER_BLOCK, 1), 1)
    wanted = reference.advance(state, problem, sum(steps))
    allowed = reference.tolerance(problem, sum(steps), reference.largest_magnitude(state, problem))
    error = float(np.abs(run(method, problem, parameters, device, steps) - wanted).max())
    sys.stdout.write(
        f"{method.name} {name} {dtype} {dict(parameters)}: error {error:.1e}, allowed "
        f"{allowed:.1e}\n"
    )
    return not error <= allowed


if __name__ == "__main__":
    sys.exit(main())
