"""Without a GPU: gpu.stream for bodies of a few materials, whole steps with faces and halos against
the reference.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.support.conduction_cases import Case, beam, closed, graded, heating, mixed_faces, rings
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tests.support.enthalpy_cases import cooled_body
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.stream.method import METHOD
from tetris_sim.model import reference
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab

emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

NAMES_2D = ("steps_per_block", "rows", "columns", "warps", "blocks", "edges", "scheme", "copies")
BRANCH = {**dict(zip(NAMES_2D, (3, 4, 6, 2, 1, 1, 0, 1), strict=True)), "longest": 0}
REGISTERS = {**dict(zip(NAMES_2D, (3, 3, 4, 2, 1, 2, 1, 16), strict=True)), "longest": 30}
REGISTERS_OF_MANY = {**REGISTERS, "copies": 8}
NAMES_3D = ("steps_per_block", "rows", "warps", "blocks", "ahead", "copies")
IN_3D = dict(zip(NAMES_3D, (2, 3, 2, 1, 2, 1), strict=True))

CASES = (
    (Case("plate", (31, 47), 5, mixed_faces, heating(5, changes=True)), BRANCH),
    (Case("plate, ring", (40, 43), 4, rings, heating(4, changes=False)), BRANCH),
    (Case("plate, registers", (31, 47), 5, mixed_faces), REGISTERS),
    (Case("plate, closed", (33, 38), 16, closed, dtype=np.float32), REGISTERS),
    (Case("plate, many", (31, 47), 40, mixed_faces, heating(40, changes=True)), BRANCH),
    (Case("plate, many, registers", (31, 47), 40, mixed_faces), REGISTERS_OF_MANY),
    (Case("plate, many, rings", (40, 43), 17, rings, dtype=np.float32), REGISTERS_OF_MANY),
    (
        Case("plate, float32", (30, 50), 3, mixed_faces, heating(3, changes=True), np.float32),
        BRANCH,
    ),
    (Case("block", (9, 14, 37), 6, mixed_faces, heating(6, changes=True)), IN_3D),
    (Case("block, rings", (11, 13, 40), 2, rings), IN_3D),
    (Case("block, one", (11, 13, 40), 1, mixed_faces, heating(1, changes=True)), IN_3D),
    (Case("block, many", (9, 14, 37), 40, mixed_faces, heating(40, changes=True)), IN_3D),
    (Case("block, many, float32", (9, 14, 150), 17, closed, dtype=np.float32), IN_3D),
    (
        Case("block, float32", (9, 14, 150), 6, mixed_faces, heating(6, changes=True), np.float32),
        IN_3D,
    ),
)


def advanced(
    problem: Problem,
    parameters: Parameters,
    blocks: tuple[int, ...],
    first: int = 0,
    device: Any = None,
) -> tuple[Field, Any]:
    gpu = device or HostGpu()
    stepper = METHOD.prepare(problem, Slab.whole(problem.grid), parameters, gpu)
    stepper.load(problem.initial, first)
    for steps in blocks:
        stepper.advance(steps)
    found: Field = stepper.interior()
    stepper.close()
    return found, gpu


def agree(problem: Problem, parameters: Parameters, device: Any = None) -> Any:
    """Three launches and a step; returns the device."""
    assert METHOD.refusal(problem) is None
    depth = parameters["steps_per_block"]
    state = problem.initial(Slab.whole(problem.grid))
    found, gpu = advanced(problem, parameters, (2 * depth, depth + 1), 5, device)
    wanted = reference.advance(state, problem, 3 * depth + 1, 5)
    eps = float(np.finfo(problem.arithmetic).eps)
    allowed = 10 * (3 * depth + 1) * eps * np.abs(wanted).max()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=allowed)
    return gpu


@emulated
@pytest.mark.parametrize(("case", "parameters"), CASES, ids=lambda it: getattr(it, "name", ""))
def test_whole_steps_agree_with_the_reference(case: Case, parameters: Parameters) -> None:
    gpu = agree(case.problem(), parameters)
    assert sum(name.startswith("palette") for name in gpu.launches) == 3


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_proposal_for_heat_and_coefficients_agrees_on_a_gpu(dtype: Any, gpu: Any) -> None:
    bodies = [cooled_body((203, 531), dtype), cooled_body((37, 91, 175), dtype)]
    for shape in ((203, 531), (37, 91, 175)):
        bodies += [
            of_type(changed(graded(shape, mixed_faces, alike=alike), source=None), dtype)
            for alike in (False, True)
        ]
    for problem in bodies:
        for parameters in METHOD.parameters(problem):
            agree(problem, parameters, gpu)


def cut(problem: Problem, parameters: Parameters, at: int, axis: int, steps: int) -> Field:
    """The same steps of two slabs that swap halos once."""
    shape, width = problem.grid.shape, steps
    parts = []
    for low, high in ((0, at), (at, shape[axis])):
        start, stop = [0] * len(shape), list(shape)
        start[axis], stop[axis] = low, high
        halo = [(0, 0)] * len(shape)
        halo[axis] = (width if low else 0, 0 if low else width)
        slab = Slab(tuple(start), tuple(stop), tuple(halo))
        stepper = METHOD.prepare(problem, slab, parameters, HostGpu())
        stepper.load(problem.initial)
        parts.append(stepper)
    for one, other, side in ((parts[0], parts[1], "low"), (parts[1], parts[0], "high")):
        one.set_halo(axis, "high" if side == "low" else "low", np.asarray(other.edge(axis, side)))
    for stepper in parts:
        stepper.advance(steps)
    return np.concatenate([stepper.interior() for stepper in parts], axis + 1)


@pytest.mark.gpu
@pytest.mark.parametrize("sources", [False, True])
@pytest.mark.parametrize("shape", [(203, 531), (37, 91, 175)])
@pytest.mark.parametrize(("face", "n_ids"), [(mixed_faces, 16), (closed, 2), (rings, 7)])
def test_every_proposal_agrees_with_the_reference_on_a_gpu(
    face: Any, n_ids: int, shape: tuple[int, ...], sources: bool, gpu: Any
) -> None:
    heat = heating(n_ids, changes=True) if sources else None
    for dtype in (np.float64, np.float32):
        problem = Case("body", shape, n_ids, face, heat, dtype).problem()
        for parameters in METHOD.parameters(problem) if METHOD.refusal(problem) is None else ():
            agree(problem, parameters, gpu)


def changed(problem: Problem, **changes: Any) -> Problem:
    assert problem.conduction is not None
    return dataclasses.replace(
        problem, conduction=dataclasses.replace(problem.conduction, **changes)
    )


def of_type(problem: Problem, dtype: Any) -> Problem:
    """The same problem in another precision."""
    initial = problem.initial
    return dataclasses.replace(
        problem, dtype=np.dtype(dtype), initial=lambda slab: initial(slab).astype(dtype)
    )


def layered(problem: Problem) -> Problem:
    """The same with layers, so that some of what warps read has one id, and some has not."""
    assert problem.conduction is not None
    n_ids = problem.conduction.medium.n_ids
    ids = (np.indices(problem.grid.shape)[:-1] // 11).sum(axis=0) % n_ids
    medium = dataclasses.replace(
        problem.conduction.medium,
        ids=lambda box: ids[tuple(slice(*span) for span in box)].astype(np.uint8),
    )
    return changed(problem, medium=medium)


@emulated
@pytest.mark.parametrize(
    ("shape", "axis", "at", "parameters", "n_ids"),
    [
        ((61, 47), 0, 29, BRANCH, 3),
        ((61, 47), 0, 34, REGISTERS, 3),
        ((61, 47), 0, 29, BRANCH, 17),
        ((61, 47), 0, 34, REGISTERS_OF_MANY, 17),
        ((25, 14, 37), 0, 12, IN_3D, 3),
        ((11, 31, 37), 1, 14, IN_3D, 3),
    ],
)
def test_bits_do_not_depend_on_where_the_grid_is_cut(
    shape: tuple[int, ...], axis: int, at: int, parameters: dict[str, int], n_ids: int
) -> None:
    problem = layered(Case("cut", shape, n_ids, closed).problem())
    steps = 2 * parameters["steps_per_block"]
    whole, _ = advanced(problem, parameters, (steps,))
    np.testing.assert_array_equal(cut(problem, parameters, at, axis, steps), whole)


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (Case("many", (20, 20), 257, closed).problem(), "256 materials, and the body has 257"),
        (Case("beam", (20, 20), 3, closed, beam()).problem(), "changes from step to step"),
        (Case("beam in one", (20, 20), 1, closed, beam()).problem(), "changes from step to step"),
        (Case("half", (20, 20), 3, closed, dtype=np.float16).problem(), "float64 and float32"),
        (
            changed(graded((20, 20), closed), source=heating(3, changes=True)),
            "changes from step to step",
        ),
        (
            changed(graded((9, 9, 9), closed), source=heating(3, changes=True)),
            "changes from step to step",
        ),
    ],
)
def test_what_is_refused_is_refused_with_a_reason(problem: Problem, why: str) -> None:
    refusal = str(METHOD.refusal(problem))
    assert why in refusal
    assert "; gpu.plain takes it" in refusal
    assert ("of the rate of bodies" in refusal) == (problem.dtype != np.float16)


def test_other_fused_methods_say_that_the_body_has_materials() -> None:
    problem = dataclasses.replace(Case("plate", (20, 20), 2, closed).problem(), pairs=True)
    for method in METHODS:
        if method.name not in ("gpu.stream", "gpu.plain"):
            assert "materials" in str(method.refusal(problem))
