"""A device fails in the middle of a run: the run goes on without it, or ends with a good
checkpoint.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

from tests.scheduler.test_rebalance import FAST, plan_of, resident
from tests.support.cases import make_problem, mixed_boundaries, stencil_of
from tests.support.conduction_cases import CASES
from tetris_sim.__main__ import main
from tetris_sim.config.sections.schema import ComputeSection, SimulatedSection
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.errors import ExitCode
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.checkpoint import open_checkpoint
from tetris_sim.scheduler.facts.shares import Plan, Share
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.workers.queued import WorkerError
from tetris_sim.scheduler.workers.rebalance import Recovery
from tetris_sim.scheduler.workers.worker import Worker
from tetris_sim.simulation.loop import open_simulation

GOES_ON = ComputeSection(method="cpu.plain", threads=2, tuning_budget=0)
STOPS = GOES_ON.model_copy(update={"on_device_failure": "stop"})


@pytest.fixture
def at_any_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """States are kept after every block."""
    monkeypatch.setattr("tetris_sim.scheduler.workers.rebalance._COST", math.inf)


def plate(steps: int = 60) -> Problem:
    return make_problem(
        stencil_of("heat-2d"), dict(mixed_boundaries(2))["robin"], shape=(64, 20), steps=steps
    )[0]


def failing(after: int) -> SimulatedSection:
    return FAST.model_copy(update={"fail_after": after})


def keeping(plan: Plan) -> Plan:
    return dataclasses.replace(plan, copy_for_recovery=True)


@pytest.mark.usefixtures("at_any_cost")
@pytest.mark.parametrize("seed", range(8))
def test_the_answer_does_not_know_of_a_failure(seed: int, teams: dict[int, ThreadTeam]) -> None:
    """At a random time, of a random worker, with or without states kept on the way."""
    draw = random.Random(seed)
    problem = plate()
    settings: list[SimulatedSection | None] = [FAST, None, FAST][: draw.choice((2, 3))]
    victim = draw.choice([k for k, each in enumerate(settings) if each is not None])
    settings[victim] = failing(draw.randint(1, 19))
    planes = (20, 24, 20) if len(settings) == 3 else (30, 34)
    plan = keeping(plan_of(problem, planes, 3, *settings))
    recovery = Recovery(find_machine({}), GOES_ON, every=0.0 if draw.random() < 0.7 else 1e9)
    with open_simulation(problem, plan, recovery=recovery) as simulation:
        assert simulation.run() is None
        found, after = simulation.field(), simulation.plan
    np.testing.assert_array_equal(found, resident(problem, 60, teams[1]))
    assert f"simulated:{victim}" not in [share.worker for share in after.shares]
    (note,) = after.notes
    assert note.startswith(f"simulated:{victim} failed: it was to fail in its time block number")


@pytest.mark.usefixtures("at_any_cost")
@pytest.mark.parametrize("every", [0.0, 1e9])
def test_what_changes_with_time_goes_on_where_it_was(
    every: float, teams: dict[int, ThreadTeam]
) -> None:
    problem = CASES[2].problem(steps=60)
    plan = keeping(plan_of(problem, (10, 9), 3, failing(11), None))
    recovery = Recovery(find_machine({}), GOES_ON, every=every)
    with open_simulation(problem, plan, recovery=recovery) as simulation:
        assert simulation.run() is None
        found = simulation.field()
        assert len(simulation.plan.notes) == 1
    np.testing.assert_array_equal(found, resident(problem, 60, teams[1]))


@pytest.mark.usefixtures("at_any_cost")
def test_the_only_device_is_replaced_by_the_cpu(teams: dict[int, ThreadTeam]) -> None:
    problem = plate()
    plan = keeping(plan_of(problem, (64,), 3, failing(9)))
    with open_simulation(
        problem, plan, recovery=Recovery(find_machine({}), GOES_ON, every=0.0)
    ) as simulation:
        assert simulation.run() is None
        assert [share.worker for share in simulation.plan.shares] == ["cpu:0"]
        found = simulation.field()
    np.testing.assert_array_equal(found, resident(problem, 60, teams[1]))
    # States were kept after each block: it was not begun anew.
    assert "the run went on from step 24 without it" in simulation.plan.notes[0]


@pytest.mark.usefixtures("at_any_cost")
def test_all_devices_may_fail_one_after_the_other(teams: dict[int, ThreadTeam]) -> None:
    problem = plate()
    plan = keeping(plan_of(problem, (20, 24, 20), 3, failing(5), failing(9), failing(13)))
    with open_simulation(
        problem, plan, recovery=Recovery(find_machine({}), GOES_ON, every=0.0)
    ) as simulation:
        assert simulation.run() is None
        assert [share.worker for share in simulation.plan.shares] == ["cpu:0"]
        assert len(simulation.plan.notes) == 3
        np.testing.assert_array_equal(simulation.field(), resident(problem, 60, teams[1]))


@pytest.mark.parametrize(("at_once", "speed"), [(True, 1e9), (False, 1e9), (False, 1e15)])
def test_two_devices_may_fail_together(
    at_once: bool, speed: float, teams: dict[int, ThreadTeam], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both in one block, or the second one when it is to take the slab of the first."""
    problem = plate()
    even = FAST.model_copy(update={"speed": speed})
    first = even.model_copy(update={"fail_after": 6})
    second = first if at_once else even
    plan = plan_of(problem, (20, 24, 20), 3, first, None, second)
    change = Worker.change

    def fails(self: Worker, problem: Problem, share: Share) -> None:
        if self.name == "simulated:2" and not at_once:
            raise WorkerError(self.name, "its memory is gone")
        change(self, problem, share)

    monkeypatch.setattr(Worker, "change", fails)
    with open_simulation(problem, plan, recovery=Recovery(find_machine({}), GOES_ON)) as simulation:
        assert simulation.run() is None
        assert [share.worker for share in simulation.plan.shares] == ["cpu:1"]
        np.testing.assert_array_equal(simulation.field(), resident(problem, 60, teams[1]))


def test_the_newest_state_counts_whether_in_memory_or_on_the_disk() -> None:
    problem = plate()
    values = np.ones(problem.state_shape)

    recovery = Recovery(find_machine({}), GOES_ON)
    recovery.latest = lambda: (20, problem.initial)
    assert recovery.state(problem, 5)[0] == 20
    recovery.keep(30, lambda: values)
    step, state = recovery.state(problem, 5)
    assert step == 30
    part: Field = state(Slab((3, 4), (7, 9), ((0, 0), (0, 0))))
    assert part.shape == (1, 4, 5)
    recovery = Recovery(find_machine({}), GOES_ON)
    assert recovery.state(problem, 5) == (5, problem.initial)


def test_states_are_kept_seldom_enough_to_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("tetris_sim.scheduler.workers.rebalance.time.perf_counter", lambda: now[0])
    problem = plate()
    plan = plan_of(problem, (64,), 3, FAST)
    recovery = Recovery(find_machine({}), GOES_ON)
    now[0] = 111.0
    assert not recovery.due(plan)  # no memory for it
    assert recovery.due(keeping(plan))

    def read() -> Field:
        now[0] += 2.0
        return np.ones(problem.state_shape)

    recovery.keep(3, read)
    now[0] += 150.0
    assert not recovery.due(keeping(plan))
    now[0] += 100.0
    assert recovery.due(keeping(plan))
    # Nor is a short run held up for a large state that it has not kept before.
    assert plan.profile is not None
    work = dataclasses.replace(plan.profile.work, plane_bytes=17 << 30, n_planes=1)
    large = dataclasses.replace(keeping(plan), profile=dataclasses.replace(plan.profile, work=work))
    recovery = Recovery(find_machine({}), GOES_ON)
    now[0] += 800.0
    assert not recovery.due(large)
    now[0] += 200.0
    assert recovery.due(large)


def test_without_a_way_on_the_run_ends_with_the_devices_message() -> None:
    problem = plate()
    with (
        pytest.raises(WorkerError, match="simulated:0 failed"),
        open_simulation(problem, plan_of(problem, (30, 34), 3, failing(4), None)) as simulation,
    ):
        simulation.run()


@pytest.mark.usefixtures("at_any_cost")
def test_a_run_that_is_to_stop_says_so_and_has_the_state_that_was_kept() -> None:
    problem = plate()
    plan = keeping(plan_of(problem, (30, 34), 3, failing(7), None))
    with open_simulation(
        problem, plan, recovery=Recovery(find_machine({}), STOPS, every=0.0)
    ) as simulation:
        reason = simulation.run()
        assert reason is not None
        assert reason.exit_code == ExitCode.REQUEUE
        assert (
            "number 7 (in the block after step 18); the state of step 18 is kept" in reason.sentence
        )
        assert (simulation.step, simulation.field().shape) == (18, (1, 64, 20))


PLATE = """
grid: {{shape: [40, 64]}}
model: {{type: stencil, stencil: heat-2d, weights: [0.1, 0.2, 0.4, 0.2, 0.1]}}
initial: {{type: random}}
boundaries: {{"*": {{type: fixed, value: 0}}}}
time: {{steps: 200}}
compute:
  devices: ["simulated:0", cpu]
  threads: 2
  method: cpu.plain
  tuning_budget: 0
  time_block: 5
  shares: [1, 1]
  on_device_failure: {policy}
  simulated: {{speed: 1e12, latency: 0, fail_after: {block}}}
output: {{directory: {out}, pictures: false, statistics: {{every: 10 steps}}, fields: {{every: 50 steps}}}}
checkpoint: {{every: 30 steps}}
"""


def test_a_whole_run_goes_on_from_its_checkpoint_and_ends_with_the_same_files(
    tmp_path: Path,
) -> None:
    fields = []
    for block in (10**6, 17):
        config, out = tmp_path / f"{block}.yaml", tmp_path / str(block)
        config.write_text(PLATE.format(out=out, block=block, policy="continue"))
        assert main(["run", str(config)]) == ExitCode.OK
        checkpoint = open_checkpoint(max((out / "checkpoints").glob("*.h5")))
        fields.append(checkpoint.initial(Slab((0, 0), (64, 40), ((0, 0), (0, 0)))))
        checkpoint.close()
        report = json.loads((out / "report.json").read_text())
        assert report["step"] == 200
    np.testing.assert_array_equal(fields[0], fields[1])
    assert report["notes"][0].startswith("simulated:0 failed:")
    assert "from step 60 without it" in report["notes"][0]
    (row,) = report["workers"]
    assert (row["worker"], row["share"]) == ("cpu:0", 1.0)
    whole = json.loads((tmp_path / "1000000" / "report.json").read_text())["workers"]
    assert [each["worker"] for each in whole] == ["simulated:0", "cpu:0"]
    assert all(each["busy_s"] > 0 and 0 <= each["measured_idle"] <= 1 for each in whole)
    assert " of the grid, " in (tmp_path / "1000000" / "report.txt").read_text()
    tables = [(tmp_path / name / "statistics.csv").read_text() for name in ("1000000", "17")]
    assert tables[0] == tables[1]


def test_a_whole_run_that_stops_can_be_continued(tmp_path: Path) -> None:
    config, out = tmp_path / "plate.yaml", tmp_path / "out"
    config.write_text(PLATE.format(out=out, block=17, policy="stop"))
    assert main(["run", str(config)]) == ExitCode.REQUEUE
    assert json.loads((out / "report.json").read_text())["step"] == 60
    whole = PLATE.format(out=out, block=10**6, policy="stop")
    config.write_text(whole)
    assert main(["run", str(config), "--resume", "auto"]) == ExitCode.OK
    assert json.loads((out / "report.json").read_text())["step"] == 200


def test_a_lost_device_is_in_the_first_line_and_an_error_if_it_is_to_be(tmp_path: Path) -> None:
    config, out = tmp_path / "plate.yaml", tmp_path / "out"
    config.write_text(PLATE.format(out=out, block=17, policy="continue"))
    assert main(["run", str(config)]) == ExitCode.OK
    first = (out / "report.txt").read_text().splitlines()[0]
    assert first.startswith("Done, without simulated:0, which failed on the way")

    assert main(["run", str(config), "--overwrite", "--strict"]) == ExitCode.RESOURCES
    report = json.loads((out / "report.json").read_text())
    assert (report["step"], report["exit_code"]) == (60, ExitCode.RESOURCES)
    assert "simulated:0 failed" in (out / "report.txt").read_text().splitlines()[0]
    with open_checkpoint(max((out / "checkpoints").glob("*.h5"))) as checkpoint:
        assert checkpoint.state.step == 60

    config.write_text(PLATE.format(out=out, block=10**6, policy="continue"))
    assert main(["run", str(config), "--strict", "--resume", "auto"]) == ExitCode.OK
    assert (out / "report.txt").read_text().startswith("Done: steps 60 to 200")
