"""Batch: runs of a sweep that differ in their initial fields only, advanced as planes of one grid.

Each has the folder, the outputs, the last checkpoint and the report that it has alone, and every
point is made by the same operations. A batch that is stopped saves each of its runs, which then go
on one by one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import resource
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tetris_sim.config import Config
from tetris_sim.errors import ExitCode
from tetris_sim.model.method import Box
from tetris_sim.model.plane_stack import together, why_not_planes
from tetris_sim.model.problem import Field, Problem
from tetris_sim.outputs import results
from tetris_sim.outputs.checkpoint.directory import Checkpoints
from tetris_sim.outputs.make import make_outputs
from tetris_sim.outputs.output import Output, Snapshot
from tetris_sim.outputs.tables import read_audit
from tetris_sim.scheduler.comm.communicator import Alone
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.simulation.loop import open_simulation
from tetris_sim.simulation.preparation import Setting, choose_scheme
from tetris_sim.simulation.report import make_report
from tetris_sim.simulation.resuming import RunStates
from tetris_sim.simulation.workers import StateSnapshot
from tetris_sim.support.files import atomic_text
from tetris_sim.support.progress import PhaseClock
from tetris_sim.support.stopping import Stopping
from tetris_sim.sweep_table import Case

MOST_RUNS = 1024  # of a batch: each has files that are open
_LARGE = 1 << 20  # points of a grid that keeps a device busy by itself
_MOST_POINTS = 1 << 27  # of a batch
_FILES_EACH, _FILES_BESIDE = 8, 256
_FREE = "initial"  # the section in which runs of a batch may differ


def make_batches(cases: Sequence[Case], seats: int) -> tuple[list[tuple[Case, ...]], str]:
    """(runs by what they are made with: together or one alone; how that is, as a sentence).

    Args:
        cases: the runs that are still to be made.
        seats: how many processes share them out; each gets as many batches as the others.
    """
    alone = [case for case in cases if (case.directory / results.CHECKPOINTS).exists()]
    groups: dict[str, list[Case]] = {}
    why_not = why_not_batched(cases[0].config)
    for case in cases if why_not is None else ():
        if case not in alone:
            fixed = {k: v for k, v in case.chosen.items() if k.partition(".")[0] != _FREE}
            groups.setdefault(json.dumps(fixed, sort_keys=True, default=str), []).append(case)

    if why_not is not None or max(map(len, groups.values()), default=0) < 2:
        why_not = why_not or "no two of them differ in their initial fields only"
        return [(case,) for case in cases], f"One run at a time: {why_not}."

    made: list[tuple[Case, ...]] = [(case,) for case in alone]
    for group in groups.values():
        points = math.prod(group[0].config.grid.shape)
        most = max(1, min(_most_open_runs(), _MOST_POINTS // points))
        size = min(most, math.ceil(len(group) / seats))
        made += [tuple(group[k : k + size]) for k in range(0, len(group), size)]
    largest = max(map(len, made))
    said = f"Up to {largest} runs together, as planes of one grid: only their initial fields differ"
    return made, f"{said}."


def why_not_batched(config: Config) -> str | None:
    """Why runs like this one are made one by one, as a sentence; None if they need not be."""
    if len(config.grid.shape) != 2 or math.prod(config.grid.shape) > _LARGE:
        return f"grids of two axes with at most {_LARGE} points are made together"
    if config.time.scheme != "explicit" or config.time.until is not None:
        return "runs whose ends or schemes may differ are not made together"
    if config.checkpoint.every is not None or config.run.max_walltime is not None:
        return "checkpoints on the way and limits of time are of one run each"
    return why_not_planes([config.build()])


def launch_batch(configs: Sequence[Config]) -> dict[str, Any]:
    """Make runs together; how all of them `ended`, and the `exit_code`.

    Raises:
        TetrisError: of any kind; none of the runs then counts as made.
        ValueError: they differ in more than their initial fields.
    """
    _allow_open_files()
    members = [config.build() for config in configs]
    problem, clock, stopping = together(members), PhaseClock(), Stopping(speaks=False)
    directories = [results.directory_of(config) for config in configs]
    machine = find_machine()
    with clock.phase("plan"):
        setting = Setting(
            *(configs[0], problem, machine, configs[0].compute, Alone(), 0, None, True)
        )
        plan, _ = choose_scheme(setting, compare=False)

    note = (
        f"Made together with {len(configs) - 1} other runs, as planes of one grid; times and rates "
        "are those of all of them."
    )
    plan = dataclasses.replace(plan, notes=(*plan.notes, note))
    runs = [
        _Member(config, member, plan, clock, directory)
        for config, member, directory in zip(configs, members, directories, strict=True)
    ]
    outputs = [_PlaneOutput(k, it.problem, out) for k, it in enumerate(runs) for out in it.outputs]

    with contextlib.ExitStack() as stack:
        stack.enter_context(stopping.listening())
        for directory in directories:
            stack.enter_context(results.locked(directory))
        simulation = stack.enter_context(
            open_simulation(problem, plan, outputs=outputs, stopping=stopping, clock=clock)
        )
        for config, directory in zip(configs, directories, strict=True):
            results.clear(directory)
            atomic_text(directory / results.CONFIG, config.resolved_text())
        reason = simulation.run()

        snapshot = simulation.snapshot()
        with clock.phase("checkpoint"):
            for k, run in enumerate(runs):
                run.saving.finish(_plane(snapshot, k, run.problem), early=reason is not None)

        ended = "Done" if reason is None else reason.said
        code = ExitCode.OK if reason is None else reason.exit_code
        for run in runs:
            report = make_report(
                *(run.problem, plan, machine, clock),
                first_step=0,
                step=simulation.step,
                ended=ended,
                exit_code=code,
                outputs=str(run.directory),
                heat=read_audit(run.directory, simulation.step),
            )
            # Those of the batch: alone, none of them took so long.
            rates = ("points_per_second", "points_per_second_overall", "effective_bytes_per_second")
            report = dataclasses.replace(
                report, **{name: getattr(report, name) * len(runs) for name in rates}
            )
            atomic_text(run.directory / results.REPORT_TEXT, report.as_text() + "\n")
            atomic_text(run.directory / results.REPORT_JSON, json.dumps(report.as_json()) + "\n")
    return {"ended": ended, "exit_code": int(code)}


def _most_open_runs() -> int:
    """How many runs may have their files open at a time."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = math.inf if most == resource.RLIM_INFINITY else most - _FILES_BESIDE
    return max(1, int(min(free // _FILES_EACH, MOST_RUNS)))


def _allow_open_files() -> None:
    """Let this process have as many open as it may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Member:
    """One of the runs: what it advances, and who writes it down."""

    def __init__(
        self, config: Config, problem: Problem, plan: Plan, clock: PhaseClock, directory: Path
    ) -> None:
        run_id = str(uuid.uuid4())
        self.problem, self.directory = problem, directory
        self.outputs = make_outputs(config, problem, directory, run_id=run_id)
        states = RunStates(config, problem, plan, clock, earlier=None, run_id=run_id)
        self.saving = Checkpoints.of(
            config.checkpoint,
            directory / results.CHECKPOINTS,
            states.at,
            problem=problem,
            settle=lambda: None,
            saved_step=None,
            divided=False,
        )


class _PlaneOutput:
    """An output of one of the runs, which sees its plane."""

    def __init__(self, plane: int, problem: Problem, output: Output) -> None:
        self._plane, self._problem, self._output = plane, problem, output
        self.reads_all = output.reads_all

    def next_step(self, step: int) -> int | None:
        """That of the output."""
        return self._output.next_step(step)

    def start(self, step: int) -> bool | None:
        """That of the output."""
        return self._output.start(step)

    def write(self, snapshot: Snapshot) -> None:
        """Hand on the plane."""
        self._output.write(_plane(snapshot, self._plane, self._problem))

    def flush(self) -> None:
        """That of the output."""
        self._output.flush()

    def close(self) -> None:
        """That of the output."""
        self._output.close()


def _plane(snapshot: Snapshot, plane: int, problem: Problem) -> StateSnapshot:
    """The state of one of the runs. All of it is fetched once, for all of them."""

    def read(box: Box) -> Field:
        return snapshot.field()[:, plane][(slice(None), *(slice(low, high) for low, high in box))]

    return StateSnapshot(problem, snapshot.step, read)
