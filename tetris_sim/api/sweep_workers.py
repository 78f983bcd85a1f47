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
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.config import Config
from tetris_sim.errors import CheckpointError, ExitCode, StopRequested, TetrisError
from tetris_sim.model.lowering import together, why_not_planes
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem
from tetris_sim.outputs import results, tables
from tetris_sim.outputs.checkpoint.directory import Checkpoints
from tetris_sim.outputs.heat_flows import has_heat
from tetris_sim.outputs.make import make_outputs
from tetris_sim.outputs.meter import Meter
from tetris_sim.outputs.output import Output, Snapshot, StateSnapshot
from tetris_sim.outputs.sweep_table import ENDED, ERROR
from tetris_sim.outputs.tables import LEADING, read_audit, read_table
from tetris_sim.scheduler.comm.communicator import Alone
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.machine.machine import choose_devices, find_machine
from tetris_sim.simulation.loop import open_simulation
from tetris_sim.simulation.preparation import Setting, choose_scheme
from tetris_sim.simulation.report import make_report, read_report
from tetris_sim.simulation.resuming import RunStates
from tetris_sim.support import keep_to
from tetris_sim.support.files import atomic_text
from tetris_sim.support.stopping import Stopping
from tetris_sim.support.wording import PhaseClock, first_line

# What became of the runs of a sweep: a row for each, as CSV, pandas and xarray.

Row = dict[str, Any]


@dataclass(frozen=True)
class SweepCase:
    """One run of a sweep.

    Attributes:
        number: counted from 1.
        chosen: the value of each key, as it was written.
        config: all of the configuration.
    """

    number: int
    chosen: dict[str, Any]
    config: Config

    @property
    def directory(self) -> Path:
        """Its results."""
        return results.directory_of(self.config)


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Attributes:
        directory: where everything is.
        over: the values of each key.
        zipped: whether the keys went together instead of each with each.
        rows: of each run its number, values, how it ended, and the last record of its statistics
            and probes.
        exit_code: 0, or that of the first run that did not end as it should.
    """

    directory: Path
    over: dict[str, list[Any]]
    zipped: bool
    rows: tuple[Row, ...]
    exit_code: int

    @property
    def failed(self) -> tuple[Row, ...]:
        """The runs without a result; their `error` says why."""
        return tuple(row for row in self.rows if row[ERROR])

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row per run."""
        import pandas

        return pandas.DataFrame(list(self.rows))

    def to_xarray(self) -> Any:
        """An xarray Dataset with a dimension per key; with one, `run`, if keys went together."""
        import xarray

        sizes = {key: len(values) for key, values in self.over.items()}
        if self.zipped:
            sizes = {"run": len(self.rows)}
        names = [key for key in self.rows[0] if key not in ("run", "directory", *self.over)]
        coordinates = {
            key: (("run",) if self.zipped else (key,), _plain(values))
            for key, values in self.over.items()
        }
        shape = tuple(sizes.values())
        columns = {
            name: (
                tuple(sizes),
                _plain([row.get(name, math.nan) for row in self.rows]).reshape(shape),
            )
            for name in names
        }
        return xarray.Dataset(columns, coords=coordinates)


def read_row(case: SweepCase) -> Row | None:
    """Return the results of a run that has ended as it should; None if it has not."""
    try:
        report = read_report(case.directory / results.REPORT_JSON)
    except CheckpointError:
        return None
    if report.exit_code != 0:
        return None

    row = {"wall_s": report.wall_s, "points_per_second": report.points_per_second}
    found = [("", case.directory / tables.FILE)]
    folder = case.directory / tables.FOLDER
    found += [(f"{path.stem}: ", path) for path in sorted(folder.glob("*.csv"))]
    for name, path in found:
        columns, rows = read_table(path)
        last = rows[-1] if rows else [float("nan")] * len(columns)
        row |= {
            name + column: value
            for column, value in zip(columns, last, strict=True)
            if column not in LEADING
        }
    return row


def row_of(case: SweepCase, told: Row | None) -> Row:
    """A run's row of the table."""
    found = read_row(case)
    error = "" if found is not None or told is None else str(told.get(ERROR, ""))
    ended = "Done" if found is not None else "failed" if error else "waiting"
    told_ended = ended if told is None or error else str(told.get(ENDED, ended))
    return {
        "run": case.number,
        **case.chosen,
        ENDED: told_ended,
        ERROR: error,
        **(found or {}),
        "directory": str(case.directory),
    }


def _plain(values: Sequence[Any]) -> Any:
    """Numbers as an array of numbers, all else as an array of objects."""
    if all(isinstance(it, int | float) for it in values):
        return np.asarray(values, dtype=float)
    array = np.empty(len(values), dtype=object)
    array[:] = [str(it) if isinstance(it, list | dict) else it for it in values]
    return array


MOST_RUNS = 1024  # of a batch: each has files that are open
_LARGE = 1 << 20  # points of a grid that keeps a device busy by itself
_MOST_POINTS = 1 << 27  # of a batch
_FILES_EACH, _FILES_BESIDE = 8, 256
_FREE = "initial"  # the section in which runs of a batch may differ


def make_batches(cases: Sequence[SweepCase], seats: int) -> tuple[list[tuple[SweepCase, ...]], str]:
    """(runs by what they are made with: together or one alone; how that is, as a sentence).

    Args:
        cases: the runs that are still to be made.
        seats: how many processes share them out; each gets as many batches as the others.
    """
    alone = [case for case in cases if (case.directory / results.CHECKPOINTS).exists()]
    groups: dict[str, list[SweepCase]] = {}
    why_not = why_not_batched(cases[0].config)
    for case in cases if why_not is None else ():
        if case not in alone:
            fixed = {k: v for k, v in case.chosen.items() if k.partition(".")[0] != _FREE}
            groups.setdefault(json.dumps(fixed, sort_keys=True, default=str), []).append(case)

    if why_not is not None or max(map(len, groups.values()), default=0) < 2:
        why_not = why_not or "no two of them differ in their initial fields only"
        return [(case,) for case in cases], f"One run at a time: {why_not}."

    made: list[tuple[SweepCase, ...]] = [(case,) for case in alone]
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
    if config.time.scheme != "explicit" or config.time.until is not None or config.control:
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
    # Its weights are those of all runs, whatever their initial fields, and take a factorisation.
    statistics = configs[0].output.statistics
    over = () if statistics is None else tuple(statistics.parts(configs[0].model))
    meter = Meter(members[0]) if statistics is not None and has_heat(members[0]) else None
    runs = [
        _Member(config, member, plan, clock, directory, meter)
        for config, member, directory in zip(configs, members, directories, strict=True)
    ]
    outputs = [_PlaneOutput(k, it, out) for k, it in enumerate(runs) for out in it.outputs]

    with contextlib.ExitStack() as stack:
        stack.enter_context(stopping.listening())
        for directory in directories:
            stack.enter_context(results.locked(directory))
        simulation = stack.enter_context(
            open_simulation(problem, plan, outputs=outputs, stopping=stopping, clock=clock)
        )
        for run in runs:
            results.clear(run.directory)
            atomic_text(run.directory / results.CONFIG, run.text)
        with clock.phase("output"):
            begun = simulation.snapshot()
            for k, run in enumerate(runs):
                run.begin_counting(_plane(begun, k, run))
        reason = simulation.run()

        snapshot = simulation.snapshot()
        with clock.phase("checkpoint"):
            for k, run in enumerate(runs):
                if run.moved:
                    run.saving.count(snapshot.step, run.moved)
                run.saving.finish(_plane(snapshot, k, run), early=reason is not None)

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
                heat=read_audit(run.directory, simulation.step, over),
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
    with contextlib.suppress(ValueError):  # of macOS, where infinity is more than it gives
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Member:
    """One of the runs: what it advances, and who writes it down."""

    def __init__(
        self,
        config: Config,
        problem: Problem,
        plan: Plan,
        clock: PhaseClock,
        directory: Path,
        meter: Meter | None,
    ) -> None:
        self.text = config.resolved_text()
        run_id = str(uuid.uuid4())
        self.problem, self.directory = problem, directory
        self._meter = meter
        self.moved: Mapping[str, float] = {}  # see `WorkerGroup.moved`
        self.outputs = make_outputs(config, problem, directory, run_id=run_id, meter=meter)
        states = RunStates(self.text, problem, plan, clock, earlier=None, run_id=run_id)
        self.saving = Checkpoints.of(
            config.checkpoint,
            directory / results.CHECKPOINTS,
            states.at,
            problem=problem,
            settle=lambda: None,
            saved_step=None,
            divided=False,
        )

    def begin_counting(self, snapshot: Snapshot) -> None:
        """Count heat from this state on."""
        if self._meter is not None:
            self.moved = self._meter.begin(snapshot)


class _PlaneOutput:
    """An output of one of the runs, which sees its plane."""

    def __init__(self, plane: int, run: _Member, output: Output) -> None:
        self._plane, self._run, self._output = plane, run, output
        self.reads_all = output.reads_all

    def next_step(self, step: int) -> int | None:
        """That of the output."""
        return self._output.next_step(step)

    def start(self, step: int) -> bool | None:
        """That of the output."""
        return self._output.start(step)

    def write(self, snapshot: Snapshot) -> None:
        """Hand on the plane."""
        self._output.write(_plane(snapshot, self._plane, self._run))

    def flush(self) -> None:
        """That of the output."""
        self._output.flush()

    def close(self) -> None:
        """That of the output."""
        self._output.close()


def _plane(snapshot: Snapshot, plane: int, run: _Member) -> StateSnapshot:
    """The state of one of the runs. All of it is fetched once, for all of them."""

    def read(box: Box) -> Field:
        return snapshot.field()[:, plane][(slice(None), *(slice(low, high) for low, high in box))]

    return StateSnapshot(run.problem, snapshot.step, read, moved=run.moved)


# ProcessPool: the processes of a sweep, each with cores or a GPU of its own, and how they are
# talked to.
#
# Lines of JSON go both ways: a configuration in, what became of it out. The other end is
# `python -m tetris_sim.api.sweep_workers`. When the line to it breaks, it saves its run and ends,
# so that a sweep that is killed leaves no process behind.

_STATES = 4  # times the state that a run takes, with what it is compiled by and written from
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_LEAVING = 60.0  # seconds that a process may take to save its run


@dataclass(frozen=True)
class ProcessSlot:
    """Processors and GPU of one process of a sweep.

    Attributes:
        cores: the processors that it may use.
        gpu: as it is named in CUDA_VISIBLE_DEVICES; None for none of its own.
    """

    cores: tuple[int, ...]
    gpu: str | None = None


def find_seats(configs: Sequence[Config], processes: int | None = None) -> list[ProcessSlot]:
    """Where the runs of a sweep compute: one at a time per GPU, else with as few cores as it says.

    Args:
        configs: of the runs.
        processes: how many at a time; as many as there are places for if not given.
    """
    machine, compute = find_machine(), configs[0].compute
    devices, _ = choose_devices(machine, compute)
    gpus = [device.number for device in devices if device.kind == "gpu"]
    if not isinstance(compute.devices, str):
        gpus, most = [], 1  # they were named one by one, for one run
    elif gpus:
        most = len(gpus)
    else:
        threads = 1 if compute.threads == "auto" else compute.threads
        state = configs[0].build().state_bytes
        most = min(machine.threads // threads, int(machine.memory // (_STATES * state)))

    n = max(1, min(len(configs), processes or most))
    visible = os.environ.get(_VISIBLE, "").split(",")
    cores = machine.cores
    per_seat = max(1, min(len(cores), machine.threads) // n)
    seats = []
    for i in range(n):
        own = [cores[(i * per_seat + k) % len(cores)] for k in range(per_seat)]
        number = gpus[i % len(gpus)] if gpus else None
        named = number is not None and number < len(visible) and visible[number]
        gpu = None if number is None else str(named or number)
        seats.append(ProcessSlot(tuple(own), gpu))
    return seats


class ProcessPool:
    """One process that makes runs, one after the other; begun with the first, anew if it dies."""

    def __init__(self, seat: ProcessSlot) -> None:
        self._seat = seat
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def plan(self, config: Config) -> None:
        """Find the fastest method for a run, so that others find it in the cache."""
        self._ask([config], plans=True)

    def run(self, config: Config) -> dict[str, Any]:
        """Make a run, or go on with it; how it `ended` or what `error` it ended with."""
        return self._ask([config])

    def run_together(self, configs: Sequence[Config]) -> dict[str, Any]:
        """The same of runs that are made as planes of one grid."""
        return self._ask(configs)

    def close(self) -> None:
        """End the process; a run that is under way is saved first."""
        self._closed = True
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_LEAVING)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _ask(self, configs: Sequence[Config], *, plans: bool = False) -> dict[str, Any]:
        process = self._begin()
        order = {"texts": [it.resolved_text() for it in configs], "plans": plans}
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            reply = process.stdout.readline()
        except (OSError, ValueError):
            reply = ""
        if reply:
            told: dict[str, Any] = json.loads(reply)
            return told

        code = process.wait()
        self._process = None
        return {
            "error": f"its process ended with code {code}",
            "exit_code": int(ExitCode.INTERNAL),
        }

    def _begin(self) -> subprocess.Popen[str]:
        if self._process is None:
            environ = dict(os.environ)
            if self._seat.gpu is not None:
                environ[_VISIBLE] = self._seat.gpu
            cores = ",".join(map(str, self._seat.cores))
            root = str(Path(__file__).resolve().parents[2])
            environ["PYTHONPATH"] = os.pathsep.join(
                [root, *filter(None, [environ.get("PYTHONPATH")])]
            )

            self._process = subprocess.Popen(
                [sys.executable, "-m", "tetris_sim.api.sweep_workers", cores],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environ,
            )
        return self._process


def _serve(cores: Sequence[int]) -> None:
    """Do what the lines of standard input say."""
    keep_to(tuple(cores))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a run listens for itself
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed is no reply
    orders: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    running = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            orders.put(line)
        orders.put(None)
        if running.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
        # The results are no longer wanted, and a run that hangs would otherwise never end.
        time.sleep(_LEAVING)
        os._exit(int(ExitCode.REQUEUE))

    threading.Thread(target=listen, daemon=True).start()
    while (line := orders.get()) is not None:
        running.set()
        reply = make_runs(base=os.getcwd(), **json.loads(line))
        running.clear()
        try:
            replies.write(json.dumps(reply) + "\n")
            replies.flush()
        except BrokenPipeError:  # the sweep was killed; what was made is saved
            os._exit(int(ExitCode.REQUEUE))


def make_runs(texts: Sequence[str], base: str, *, plans: bool = False) -> dict[str, Any]:
    """Make a run, or go on with it; several are made together as planes of one grid.

    Args:
        texts: the configurations, resolved.
        base: directory of their relative paths.
        plans: only find the fastest method, so that others find it in the cache.

    Returns:
        How it `ended` or what `error` it ended with, and its `exit_code`.
    """
    from tetris_sim.config import read_config
    from tetris_sim.scheduler.comm.communicator import Alone
    from tetris_sim.simulation.launch import launch
    from tetris_sim.simulation.preparation import prepare

    try:
        configs = [
            read_config(text, name="the sweep", base=Path(base), environ={}) for text in texts
        ]
        if plans:
            prepare(configs[0], Alone())
            return {}
        if len(configs) > 1:
            return launch_batch(configs)
        report = launch(configs[0], resume="auto")
        return {"ended": report.ended, "exit_code": report.exit_code}
    except StopRequested as stopped:
        return {"ended": f"Stopped early: {stopped}", "exit_code": int(stopped.exit_code)}
    except TetrisError as error:
        return {"error": first_line(error), "exit_code": int(error.exit_code)}
    except Exception as error:  # noqa: BLE001 - told in the table, and the other runs go on
        said = f"{type(error).__name__}: {first_line(error)}"
        return {"error": said, "exit_code": int(ExitCode.INTERNAL)}


if __name__ == "__main__":
    _serve([int(core) for core in sys.argv[1].split(",")])
