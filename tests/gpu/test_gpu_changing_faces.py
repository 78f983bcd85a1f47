"""Without a GPU: bodies of one material whose faces change with time, by fused kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_gpu_streamed import HostCopies, streamed
from tests.support.cases import make_problem, stencil_of
from tests.support.conduction_cases import Case, affine, closed, insulated, radiating
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.boundary.domain import are_in_range
from tetris_sim.gpu_kernels.fused.method import FusedMethod
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Dirichlet, Face, Neumann, Robin
from tetris_sim.model.conduction import RuledFace
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.reference import allowed_error
from tetris_sim.model.slab import Slab

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
SHAPES = {1: (700,), 2: (90, 101), 3: (21, 26, 70)}
BY_NAME = {method.name: method for method in METHODS if isinstance(method, FusedMethod)}


def changing(b: float, jumps_at: float = np.inf) -> RuledFace:
    """A wave, and 1 more from a time on."""

    def a(times: Any) -> Any:
        return ((1 - b) * (0.5 + 0.3 * np.sin(times / 40) + (times >= jumps_at)))[:, None]

    return affine(a, np.array([b]))


def body(faces: list[tuple[RuledFace, RuledFace]], dtype: str = "float64") -> Problem:
    """Of one material; a step takes 0.01 s."""
    problem = Case("body", SHAPES[len(faces)], 1, closed, None, np.dtype(dtype)).problem()
    assert problem.conduction is not None
    medium = problem.conduction.medium
    even = replace(
        medium, conductance=np.ones_like(medium.conductance), capacity=np.full(1, 0.05 * 3)
    )
    conduction = replace(problem.conduction, medium=even)
    boundary = Boundary(tuple(faces))
    return replace(problem, conduction=conduction, boundary=boundary, dt=0.0225)


def advanced(
    method: str, problem: Problem, steps: list[int], first: int = 0, **changes: int
) -> tuple[Field, HostGpu]:
    gpu: Any = HostGpu()
    parameters = {**BY_NAME[method].parameters(problem)[0], **changes}
    slab = Slab.whole(problem.grid)
    stepper = BY_NAME[method].prepare(problem, slab, parameters, gpu)
    stepper.load(problem.initial, first)
    for n in steps:
        stepper.advance(n)
    found: Field = stepper.interior()
    stepper.close()
    return found, gpu


def agrees(found: Field, problem: Problem, steps: int, first: int = 0) -> None:
    state = problem.initial(Slab.whole(problem.grid))
    wanted = reference.advance(state, problem, steps, first)
    error = np.abs(found - wanted).max()
    assert error <= allowed_error(state, wanted, problem, steps, first).max() / 4


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("method", "ndim"),
    [("gpu.stream", 2), ("gpu.stream", 3), ("gpu.trapezoid", 2)],
)
def test_ghosts_that_change_last_for_a_block(method: str, ndim: int, dtype: str) -> None:
    if method == "gpu.trapezoid" and dtype == "float32":
        pytest.skip("products are float64")
    faces = [(changing(0.6), changing(-1.0)), (insulated(), changing(0.0)), (insulated(),) * 2]
    problem = body(faces[:ndim], dtype)
    depth = BY_NAME[method].depth(problem, {})
    found, gpu = advanced(method, problem, [2 * depth + 1], first=5)
    agrees(found, problem, 2 * depth + 1, 5)
    frames = gpu.launches.count("frame_conduction")
    assert frames == 2  # where two that change meet
    assert gpu.launches.count("conduct") == 1


@pytest.mark.parametrize(("method", "ndim"), [("gpu.dual_tessellation", 2), ("gpu.trapezoid", 3)])
def test_a_block_may_be_one_step(method: str, ndim: int) -> None:
    problem = body([(changing(0.6), changing(0.0))] * ndim)
    found, gpu = advanced(method, problem, [3, 64], first=5, steps_per_block=1)
    agrees(found, problem, 67, 5)
    assert gpu.replays == 2
    kernels = [name for name in gpu.launches if name.startswith(method.removeprefix("gpu."))]
    assert len(kernels) == gpu.launches.count("ghosts") == 67


def test_float32_does_not_hold_what_ghosts_of_long_blocks_are_made_with() -> None:
    problem = body([(changing(0.6), changing(-1.0)), (insulated(),) * 2], "float32")
    assert are_in_range(problem, 16)
    assert not are_in_range(problem, 128)


def test_a_line_has_frames_where_faces_change_and_they_are_recorded() -> None:
    """So that no launch has to be made by itself, whatever a face does."""
    problem = body([(changing(0.6, jumps_at=5.0), changing(-1.0))])
    depth = 16
    found, gpu = advanced("gpu.trapezoid", problem, [33 * depth + 1], 5, steps_per_block=depth)
    assert gpu.replays == 1
    assert gpu.launches.count("frame_line") == 33
    assert "ghosts" not in gpu.launches
    agrees(found, problem, 33 * depth + 1, 5)


def test_a_frame_takes_over_where_a_face_jumps() -> None:
    problem = body([(changing(-1.0, jumps_at=40 * 0.0225), insulated()), (insulated(),) * 2])
    depth = BY_NAME["gpu.stream"].depth(problem, {})
    assert depth == 16
    found, gpu = advanced("gpu.stream", problem, [80])
    agrees(found, problem, 80)
    # Steps 32 to 47 are those of the jump; no two faces that change meet.
    assert gpu.launches.count("frame_conduction") == 1
    assert gpu.launches.count("ghosts") == 5


def test_records_of_launches_are_given_the_terms_of_their_blocks() -> None:
    problem = body([(changing(0.6), insulated()), (insulated(), insulated())])
    depth = 4
    steps = [32 * depth + depth + 3, 32 * depth]
    found, gpu = advanced("gpu.stream", problem, steps, steps_per_block=depth)
    assert gpu.replays == 2
    agrees(found, problem, 65 * depth + 3)


def test_a_record_is_not_made_where_a_face_jumps_on_its_way() -> None:
    problem = body(
        [(changing(-1.0, jumps_at=52.5 * 0.0225), insulated()), (insulated(), insulated())]
    )
    found, gpu = advanced("gpu.stream", problem, [32 * 8], steps_per_block=8)
    assert gpu.replays == 0
    assert gpu.launches.count("frame_conduction") == 1
    agrees(found, problem, 32 * 8)


def test_pieces_of_a_streamed_slab_have_the_courses_of_their_steps() -> None:
    problem = body([(changing(0.6), changing(0.6)), (insulated(), changing(-1.0))])
    gpu: Any = HostGpu()
    method = BY_NAME["gpu.stream"]
    parameters = {**method.parameters(problem)[0], "steps_per_block": 4}
    found = streamed(method, problem, parameters, gpu, HostCopies(gpu), (8, 30, 8))
    assert "stream_2d" in gpu.launches
    agrees(found, problem, 9)


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_face_that_radiates_has_a_frame_beside_the_kernel_of_one_stencil(ndim: int) -> None:
    problem = body([(radiating(ndim), insulated())] * ndim)
    depth = BY_NAME["gpu.stream"].depth(problem, {})
    found, gpu = advanced("gpu.stream", problem, [depth + 2])
    agrees(found, problem, depth + 2)
    assert gpu.launches.count("frame_line" if ndim == 1 else "frame_conduction") == 1
    assert gpu.launches.count(f"stream_{ndim}d") == 1


@pytest.mark.parametrize(
    ("face", "launches"), [(Robin(h=4.0, ambient=0.5), 3), (Dirichlet(0.5), 1), (Neumann(), 1)]
)
def test_the_ends_of_a_long_line_are_made_after_its_ghosts(face: Face, launches: int) -> None:
    """So that all other points need not wait for ghosts that are sums."""
    boundary = Boundary.everywhere(face, 1)
    problem, _ = make_problem(stencil_of("heat-1d"), boundary, shape=(40_007,), mirrored=True)
    found, gpu = advanced("gpu.trapezoid", problem, [129])
    assert gpu.launches.count("trapezoid_1d") == launches
    agrees(found, problem, 129)
