"""Substeps of adaptive runs: the same bits for any partition, ranks and device; undone without a
trace.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from numba import njit

from tetris_sim.apps.pde.parts import folded
from tetris_sim.apps.pde.runge_kutta import PAIRS
from tetris_sim.config import make_config
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.equations import steppers
from tetris_sim.cpu_kernels.equations.steppers import CpuSubstepStepper
from tetris_sim.cpu_kernels.equations.tables import scalar_program
from tetris_sim.errors import NumericsError, UnsupportedError
from tetris_sim.gpu_kernels import METHODS as GPU_METHODS
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod as GpuPlain
from tetris_sim.model.formula import compile_expression, evaluate_each
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.step_control import Controller, Counted
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.planner import make_plan
from tetris_sim.simulation import workers as fleets
from tetris_sim.simulation.loop import open_simulation
from tetris_sim.simulation.workers import WorkerGroup

STREAM, PLAIN = METHODS[0], METHODS[-1]


def problem_of(
    scheme: str = "rk2",
    dtype: str = "float64",
    *,
    walls: bool = True,
    source: str = "0.01*t",
    **time: Any,
) -> Problem:
    """Gray-Scott with a coefficient, and a term that changes with time."""
    faces: dict[str, Any] = {
        "y": {"type": "periodic"},
        "x-": {"type": "dirichlet", "value": 1},
        "x+": {"type": "neumann", "flux": 0.1},
    }
    fields = {
        "u": "where(x < 0.4, 1, 0.5)*laplace(u)/1e3 - u*v**2 + 0.04*(1 - u)",
        "v": "laplace(v)/2e3 + u*v**2 - (0.1 + SOURCE)*v".replace("SOURCE", source),
    }
    return make_config(
        {
            "grid": {"shape": [11, 26], "size": [0.7, 1.3]},
            "model": {
                "type": "pde",
                "fields": {
                    name: {
                        "equation": text,
                        "initial": {"type": "random", "low": 0, "high": 1, "seed": k},
                    }
                    for k, (name, text) in enumerate(fields.items())
                },
            },
            "boundaries": faces if walls else {"*": {"type": "periodic"}},
            "compute": {"precision": dtype},
            "time": {"t_end": 6.0, "dt": 2.0, "scheme": scheme, "tolerance": 1e-4, **time},
        },
        environ={},
    ).build()


def solved(problem: Problem, compute: ComputeSection) -> tuple[Field, WorkerGroup]:
    plan = make_plan(problem, find_machine(), compute)
    with open_simulation(problem, plan) as simulation:
        simulation.run()
        return simulation.field(), simulation


@pytest.mark.parametrize("scheme", ["euler", "rk2", "rk4"])
def test_any_partition_has_the_same_bits_and_substeps(scheme: str) -> None:
    problem = problem_of(scheme, walls=scheme != "euler")
    alone, run = solved(problem, ComputeSection(method="cpu.plain", threads=1))
    assert run.counted.made > 6
    assert run.counted.rejected > 0 or scheme == "rk4"
    assert np.isfinite(alone).all()
    for workers in (2, 3):
        compute = ComputeSection(method="cpu.plain", devices=("cpu",) * workers, threads=workers)
        shared, other = solved(problem, compute)
        assert len(other.plan.shares) == workers
        assert other.plan.time_block == 1
        assert other.counted == run.counted
        np.testing.assert_array_equal(shared, alone)


@pytest.mark.parametrize("scheme", PAIRS)
def test_an_undone_substep_leaves_no_trace(scheme: str) -> None:
    problem, team = problem_of(scheme), ThreadTeam(2)
    stepper: Any = PLAIN.prepare(problem, Slab.whole(problem.grid), {}, team)
    stepper.load(problem.initial)
    before, peaks = stepper.interior(), stepper.peaks()
    stepper.substep(0.0, 0.3)
    assert not np.array_equal(stepper.interior(), before)
    stepper.undo()
    np.testing.assert_array_equal(stepper.interior(), before)
    np.testing.assert_array_equal(stepper.peaks()[0], peaks[0])
    stepper.substep(0.0, 0.1)
    once, seen = stepper.interior(), stepper.peaks()
    np.testing.assert_array_equal(seen[0], np.abs(once).max(axis=(1, 2)))

    stepper.load(problem.initial)
    stepper.substep(0.0, 0.1)
    np.testing.assert_array_equal(stepper.interior(), once)
    np.testing.assert_array_equal(stepper.peaks(), seen)
    stepper.close()
    team.close()


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many; several share any grid, and calls of compiled code end after a few substeps."""
    monkeypatch.setattr(steppers, "_ALONE", 0)
    monkeypatch.setattr(steppers, "_AT_ONCE", 12_000)
    return int(request.param)


def in_python(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> tuple[Field, WorkerGroup]:
    with monkeypatch.context() as changed:
        changed.setattr(CpuSubstepStepper, "divides", False)
        changed.setattr(CpuSubstepStepper, "divide", None)
        return solved(problem, ComputeSection(method="cpu.plain", threads=1))


@pytest.mark.parametrize(("scheme", "dtype"), [
    ("euler", "float64"), ("rk2", "float32"), ("rk4", "float64"),
])  # fmt: skip
def test_compiled_substeps_are_those_of_python(
    scheme: str, dtype: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = problem_of(scheme, dtype, walls=scheme != "rk2", dt=0.75)
    expected, told = in_python(problem, monkeypatch)
    found, run = solved(problem, ComputeSection(method="cpu.plain", threads=threads))
    assert run.counted == told.counted
    assert run.counted.made > problem.steps
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, expected)


def test_several_steps_are_made_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, calls = problem_of("rk2", dt=0.1, t_end=3.0), list[int]()
    divide = CpuSubstepStepper.divide

    def counted(self: CpuSubstepStepper, steps: Any, tolerance: float) -> None:
        calls.append(len(steps))
        divide(self, steps, tolerance)

    with monkeypatch.context() as changed:
        changed.setattr(CpuSubstepStepper, "divide", counted)
        found, run = solved(problem, ComputeSection(method="cpu.plain", threads=1))
    assert 1 < run.plan.time_block <= 64
    assert len(calls) == -(-30 // run.plan.time_block)
    assert sum(calls) == 30
    expected, told = in_python(problem, monkeypatch)
    assert run.counted == told.counted
    np.testing.assert_array_equal(found, expected)


def test_a_step_that_cannot_be_made_is_told_by_its_own_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # In the fourth step the square root of a time is none any more.
    monkeypatch.setattr(fleets, "cause_of", lambda *given: f" Begun in {given[2:]}.")
    problem = problem_of("rk2", source="sqrt(3.5 - t)", dt=1.0)
    with pytest.raises(NumericsError, match=r"at t = 3.5 s.* Begun in \(1, 3\)"):
        solved(problem, ComputeSection(method="cpu.plain", threads=1))


def test_repeated_steps_on_several_threads_have_the_same_bits(threads: int) -> None:
    problem, team = problem_of("rk2"), ThreadTeam(threads)
    states, counts = set[bytes](), set[Counted]()
    for _ in range(5):
        stepper: Any = PLAIN.prepare(problem, Slab.whole(problem.grid), {}, team)
        stepper.load(problem.initial)
        steps = [Controller(it, it + 0.5, 0.01, 3, Counted()) for it in (0.0, 0.5)]
        while steps:
            stepper.divide(steps, 1e-5)
            counts |= {steps[-1].counted} if steps[-1].ended else set()
            steps = [it for it in steps if not it.ended]
        states.add(stepper.interior().tobytes())
        stepper.close()
    team.close()
    assert len(states) == len(counts) == 1


def test_values_that_are_no_numbers_reject_a_substep(threads: int) -> None:
    problem, team = problem_of("euler"), ThreadTeam(threads)
    stepper: Any = PLAIN.prepare(problem, Slab.whole(problem.grid), {}, team)

    def spoiled(slab: Slab) -> Field:
        values = np.array(problem.initial(slab))
        values[1, -1, -1] = np.nan
        return values

    stepper.load(spoiled)
    tried = Controller(0.0, 2.0, 0.1, 2, Counted())
    while not tried.stuck:
        stepper.divide([tried], 1e-4)
    # Each is a tenth of the one before, and time does not go on.
    assert (tried.time, tried.counted.made) == (0.0, 0)
    assert tried.counted.rejected == 11
    stepper.close()
    team.close()


def test_peaks_of_the_state_do_not_mind_what_memory_held_before() -> None:
    problem, team = problem_of("rk2", "float32"), ThreadTeam(1)
    stepper: Any = PLAIN.prepare(problem, Slab.whole(problem.grid), {}, team)
    stepper.load(problem.initial)
    for flat in stepper._errors:
        flat[...] = 0
        # A signaling NaN at the end, which the maximum of a vector would make a quiet one.
        stepper._one.read(flat, stepper.slab.local())[0, -1, -1:].view(np.uint32)[...] = 0x7FA00000
    with np.errstate(all="raise"):
        peaks = stepper.peaks()[0]
    np.testing.assert_array_equal(peaks, abs(stepper.interior()).max(axis=(1, 2)))
    stepper.close()
    team.close()


def test_what_has_other_bits_in_numpy_is_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, team = problem_of("euler", source="sin(t)"), ThreadTeam(1)
    stepper: Any = PLAIN.prepare(problem, Slab.whole(problem.grid), {}, team)
    assert not stepper.divides
    stepper.close()
    team.close()
    assert solved(problem, ComputeSection(threads=1))[1].counted.made > 6


def test_scalars_have_the_bits_of_numpy(rng: np.random.Generator) -> None:
    texts = ["dt*t/3 - abs(t - 2)/sqrt(dt)", "where(t >= 2, -dt, 1/(t - t))", "(t > 1)*dt + 2**0.5"]
    trees = tuple(folded(compile_expression(it, ["t", "dt"]).tree, {}) for it in texts)
    program = scalar_program(trees)
    assert program is not None
    # The loop is compiled in a module of its own, with what it calls.
    problem, registers = problem_of("rk2"), program.registers.copy()
    division = steppers.make_division(problem, Slab.whole(problem.grid), 1)
    assert division is not None
    inner = sys.modules[division.loop.__module__]._evaluate
    evaluate = njit(lambda code, r, results, row: inner(code, r, results, row))
    for time, length in rng.uniform(0, 4, (50, 2)):
        registers[:2] = time, length
        row = np.zeros(len(trees))
        evaluate(program.instructions, registers, program.results, row)
        given = {"t": np.float64(time), "dt": np.float64(length)}
        with np.errstate(all="ignore"):
            assert row.tobytes() == np.array(evaluate_each(trees, given)).tobytes()


def test_others_say_why_they_do_not() -> None:
    problem = problem_of()
    for method in (*METHODS, *GPU_METHODS):
        if not method.name.endswith("plain"):
            assert method.refusal(problem) is not None
    assert "time.tolerance" in str(STREAM.refusal(problem))
    with pytest.raises(UnsupportedError, match=r"time\.tolerance"):
        make_plan(problem, find_machine(), ComputeSection(method="cpu.stream", threads=1))


def test_a_gpu_has_the_bits_of_a_cpu() -> None:
    from tests.support.emulator.emulation import COMPILER, NO_COMPILER

    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    from tests.support.emulator.host_gpu import HostGpu

    problem, team = problem_of("rk2"), ThreadTeam(1)
    found = []
    for method, device in ((PLAIN, team), (GpuPlain(), HostGpu())):
        stepper: Any = method.prepare(problem, Slab.whole(problem.grid), {}, device)
        stepper.load(problem.initial)
        stepper.substep(0.0, 0.7)
        stepper.undo()
        seen = []
        for time, length in ((0.0, 0.25), (0.25, 0.125), (0.375, 0.5)):
            stepper.substep(time, length)
            seen.append(stepper.peaks())
        found.append((stepper.interior(), np.array(seen)))
        stepper.close()
    team.close()
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)
