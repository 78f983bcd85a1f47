"""Bodies of materials in whole runs: any partition, trials, caches, checkpoints, what is refused."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pytest

from tests.scheduler.test_same_answer_on_any_partition import field_after_the_run, known_speed
from tests.support.body_samples import several_ways
from tests.support.conduction_cases import CASES, Case, affine, graded, held, mixed_faces, rings
from tests.support.enthalpy_cases import MANY, cases, melting
from tetris_sim.config.sections.schema import ComputeSection, SimulatedSection
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.errors import UnsupportedError
from tetris_sim.model import reference
from tetris_sim.model.conduction import RuledFace
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.checkpoint import problem_digest
from tetris_sim.scheduler.facts.shares import shortened
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.scheduler.tuning.measure import check_method, make_trial_problem
from tetris_sim.scheduler.tuning.tuned import tuning_key
from tetris_sim.simulation.precision_notes import first_step

__all__ = ["known_speed"]  # a fixture that counts for all tests here
CASE = {case.name: case for case in CASES}
PLATE = CASE["plate"].problem(steps=8)
MELTING = cases()["plate"]


def problem_of(name: str) -> Problem:
    if name.startswith("graded"):
        return replace(graded((11, 9), rings if "ring" in name else mixed_faces), steps=8)
    if name == "melting":
        return replace(MELTING, steps=8)
    if name == "faces of temperature":
        return replace(several_ways((17, 23)), steps=8)
    return CASE[name].problem(steps=8)


@pytest.mark.parametrize(
    "name",
    ["plate", "block, rings", "graded", "graded, ring", "melting", "faces of temperature"],
)
def test_any_partition_gives_the_same_bits(name: str) -> None:
    problem = problem_of(name)
    alone, _ = field_after_the_run(problem, ComputeSection(method="cpu.plain", threads=1))
    assert not np.array_equal(alone, problem.initial(Slab.whole(problem.grid)))
    for workers, block in ((2, 1), (3, 2), (2, "auto")):
        compute = ComputeSection(
            method="cpu.plain", devices=("cpu",) * workers, time_block=block, threads=workers + 1
        )
        shared, n_workers = field_after_the_run(problem, compute)
        assert n_workers == workers
        np.testing.assert_array_equal(shared, alone)


@pytest.mark.parametrize("name", ["plate", "graded, ring", "melting"])
def test_trials_on_other_grids_are_right(name: str) -> None:
    problem = problem_of(name)
    smaller = make_trial_problem(problem, 8 * 50, every_axis=True)
    assert smaller.grid.n_points < problem.grid.n_points
    # What times messages between many workers needs more planes than a small grid has.
    longer = shortened(problem, 3 * problem.grid.shape[0] + 1)
    for other in (smaller, longer):
        assert check_method(other, CpuPlainMethod(), {}, place=ComputeResource(2)) is None
        whole = tuple((0, n) for n in other.grid.shape)
        assert other.padded_ids(whole).shape == other.grid.shape


def test_trials_that_would_grow_make_smaller_steps() -> None:
    trial = make_trial_problem(replace(PLATE, dt_limit=PLATE.dt / 4), 8 * 200)
    assert trial.dt == PLATE.dt / 4


def test_caches_and_checkpoints_tell_bodies_apart() -> None:
    def key(problem: Problem) -> object:
        return tuning_key(
            problem, find_machine(), threads=2, fixed_threads=True, candidates=["cpu.plain"]
        )

    assert PLATE.conduction is not None
    medium, n_ids = PLATE.conduction.medium, PLATE.conduction.medium.n_ids
    unheated = replace(PLATE, conduction=replace(PLATE.conduction, source=None))
    assert key(PLATE) != key(unheated)
    assert key(PLATE) != key(replace(CASE["plate, one material"], shape=(19, 23)).problem())

    def with_low_face(face: RuledFace) -> Problem:
        boundary = PLATE.boundary
        (_, high), *others = boundary.faces
        return replace(PLATE, boundary=replace(boundary, faces=((face, high), *others)))

    def with_medium(**changed: object) -> Problem:
        assert PLATE.conduction is not None
        body = dataclasses.replace(medium, **changed)  # type: ignore[arg-type]
        return replace(PLATE, conduction=replace(PLATE.conduction, medium=body))

    ids = medium.ids(tuple((0, n) for n in PLATE.grid.shape)).copy()
    ids[11, 12] = (ids[11, 12] + 1) % n_ids
    others = [
        unheated,
        with_low_face(held(0.3)),
        with_low_face(affine(np.array([0.6]), -0.5 * np.ones(1))),
        with_low_face(affine(lambda t: 0.6 + t[:, None], -np.ones(1))),
        with_medium(capacity=medium.capacity * 1.01),
        with_medium(conductance=medium.conductance * 1.01),
        with_medium(ids=lambda box: ids[tuple(slice(*span) for span in box)]),
        graded(PLATE.grid.shape, mixed_faces),
        MELTING,
        melting(CASE["plate"], (*MANY[:2], replace(MANY[2], density=2.0, melting=MANY[0].melting))),
        melting(CASE["plate"], MANY),
    ]
    digests = {problem_digest(it) for it in (PLATE, *others)}
    assert len(digests) == len(others) + 1
    assert problem_digest(CASE["plate"].problem(steps=99)) == problem_digest(PLATE)


def test_what_differs_from_place_to_place_is_not_streamed() -> None:
    small = SimulatedSection(speed=1e9, memory=4000)
    compute = ComputeSection(method="cpu.plain", devices=("simulated",), simulated=small)
    with pytest.raises(
        UnsupportedError,
        match=r"19 planes .* \(3.91 KiB, 5 planes .* nor can they .* materials, sources",
    ):
        make_plan(PLATE, find_machine(), compute)


def test_the_first_step_in_float16_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    cold = Case("cold", (19, 23), 2, lambda axis, side, n: held(40.0)).problem()
    seen = first_step(cold)
    whole = cold.initial(Slab.whole(cold.grid))
    change = np.abs(reference.conduct(whole, cold, 0) - whole).max()
    assert seen.change == pytest.approx(change)
    assert seen.largest == 40.0
    assert 79 < seen.ghosts <= 81
    monkeypatch.setattr("tetris_sim.simulation.precision_notes._SLAB_POINTS", 5 * 23)
    part = first_step(cold)
    assert part.partly
    assert 0 < part.change <= seen.change
