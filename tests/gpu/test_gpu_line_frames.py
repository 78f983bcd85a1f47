"""Without a GPU: the frame of a line of one material, in the registers of a warp."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_gpu_changing_faces import BY_NAME, advanced, agrees, body, changing
from tests.support.cases import boundary_of, make_problem, run, stencil_of
from tests.support.conduction_cases import Case, heating, insulated, mixed_faces, radiating
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.boundary.ghosts import line_frame_defines
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
PLAIN = next(method for method in METHODS if method.name == "gpu.plain")
FACES = {
    "radiating": (radiating(1), insulated()),
    "changing": (changing(0.6), changing(-1.0, jumps_at=0.5)),
    "both": (changing(0.0), radiating(1)),
}


def advanced_singly(problem: Problem, steps: int, first: int) -> Any:
    stepper = PLAIN.prepare(problem, Slab.whole(problem.grid), {}, HostGpu())
    stepper.load(problem.initial, first)
    stepper.advance(steps)
    return stepper.interior()


@pytest.mark.parametrize(
    ("faces", "dtype", "n"),
    [
        ("radiating", "float64", 683),
        ("changing", "float64", 700),
        ("changing", "float32", 683),
        ("both", "float64", 683),
    ],
)
def test_it_has_the_bits_of_single_steps(faces: str, dtype: str, n: int) -> None:
    problem = body([FACES[faces]], dtype).on_shape((n,))
    depth = BY_NAME["gpu.stream"].depth(problem, {})
    found, gpu = advanced("gpu.stream", problem, [depth], first=3)
    assert [it for it in gpu.launches if it != "ghosts"] == ["frame_line", "stream_1d"]
    singly = advanced_singly(problem, depth, 3)
    np.testing.assert_array_equal(found[:, :depth], singly[:, :depth])
    if faces != "radiating":  # of which the other face is insulated, and has deep ghosts
        np.testing.assert_array_equal(found[:, -depth:], singly[:, -depth:])

    later, _ = advanced("gpu.stream", problem, [2 * depth + 1], first=3)
    agrees(later, problem, 2 * depth + 1, 3)


def test_a_tile_that_depends_on_both_ends_of_a_line_is_made_in_shared_memory() -> None:
    problem = body([FACES["radiating"]])
    depth = BY_NAME["gpu.stream"].depth(problem, {})
    short = problem.on_shape((2 * depth - 20,))
    found, gpu = advanced("gpu.stream", short, [depth])
    assert gpu.launches[0] == "frame_conduction"
    agrees(found, short, depth)


def test_what_registers_hold_is_one_material_that_nothing_heats_and_not_too_many_steps() -> None:
    problem = body([FACES["both"]])
    assert line_frame_defines(problem, 64) is not None
    assert line_frame_defines(problem, 1024) is None
    assert line_frame_defines(replace(problem, dtype=np.dtype("float16")), 64) is None
    assert line_frame_defines(body([FACES["both"]] * 2), 64) is None
    assert (
        line_frame_defines(
            Case("", (203,), 1, mixed_faces, heating(1, changes=False)).problem(), 64
        )
        is None
    )
    assert line_frame_defines(Case("", (203,), 2, mixed_faces).problem(), 64) is None


def test_frames_of_a_line_share_their_multiprocessors_with_nobody() -> None:
    class Asked(HostGpu):
        def function(self, source: str, entry: str, *rest: Any) -> Any:
            launch = super().function(source, entry, *rest)

            def asked(*given: Any, shared_mem: int = 0, **more: Any) -> None:
                shared.setdefault(entry, set()).add(shared_mem)
                launch(*given, shared_mem=shared_mem, **more)

            return asked

    shared: dict[str, set[int]] = {}
    gpu: Any = Asked()
    stencil = stencil_of("star-1d5p")
    problem, _ = make_problem(stencil, boundary_of("walls", 1), shape=(900,))
    method = BY_NAME["gpu.stream"]
    run(method, problem, method.parameters(problem)[0], gpu, (method.depth(problem, {}),))
    stepper = method.prepare(line := body([FACES["both"]]), Slab.whole(line.grid), {}, gpu)
    stepper.advance(method.depth(line, {}))
    assert shared["frame"] == shared["frame_line"]
    assert min(shared["frame"]) > gpu.shared_bytes * 0.9
    method = BY_NAME["gpu.trapezoid"]
    beside = method.kernel(line, method.parameters(line)[0]).shared_bytes
    assert max(shared["frame"]) + beside > gpu.shared_bytes
