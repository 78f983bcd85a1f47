"""Launch: a run from its configuration to its report, from the start or from a checkpoint.

Every rank walks this way. What is found out or written in one place is found out and written by
rank 0 and passed on to the others; where one fails, all end alike.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tetris_sim.apps.time_functions import StopCondition, read_condition
from tetris_sim.config import Config
from tetris_sim.errors import ExitCode, StopRequested
from tetris_sim.model.problem import InitialField, Problem
from tetris_sim.outputs import results
from tetris_sim.outputs.checkpoint import Checkpoint, forget_later, open_checkpoint
from tetris_sim.outputs.checkpoint.directory import Checkpoints
from tetris_sim.outputs.checkpoint.file import remove_orphans
from tetris_sim.outputs.heat_flows import has_heat
from tetris_sim.outputs.make import make_outputs
from tetris_sim.outputs.meter import Meter
from tetris_sim.outputs.output import Output
from tetris_sim.outputs.tables import read_audit
from tetris_sim.scheduler.comm.communicator import Alone, Communicator, everywhere, on_root
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.workers.rebalance import Recovery
from tetris_sim.simulation.background import AsyncWriter, Attachments, Progress, Vary
from tetris_sim.simulation.control import make_control
from tetris_sim.simulation.loop import Simulation, open_simulation
from tetris_sim.simulation.preparation import Adapt, PreparedRun, describe, prepare
from tetris_sim.simulation.report import Report, make_report
from tetris_sim.simulation.resuming import Resume, RunStates, Start, find_start, is_within
from tetris_sim.support.files import atomic_text, remove_parts
from tetris_sim.support.stopping import (
    NOTHING_DONE,
    Stopping,
    StopReason,
    find_deadline,
    stop_request,
)
from tetris_sim.support.wording import PhaseClock, listed

log = logging.getLogger("tetris_sim")


@dataclass(frozen=True)
class Launched:
    """Facts that stay the same for a whole run.

    Attributes:
        config: the wishes of the user.
        directory: the folder of the results.
        start: the place where it begins.
        checkpoint: the open file with the state to begin with; None for the initial field.
        stopping: the reasons to stop early.
        clock: the sum of time of each phase.
        ranks: all who take part.
    """

    config: Config
    directory: Path
    start: Start
    checkpoint: Checkpoint | None
    stopping: Stopping
    clock: PhaseClock
    ranks: Communicator

    @functools.cached_property
    def text(self) -> str:
        """The configuration as it stands in the results and in checkpoints."""
        return self.config.resolved_text()


@dataclass
class Underway:
    """A run between its first and its last step.

    Attributes:
        simulation: its state.
        directory: the folder of the results.
        clock: the sum of time of each phase.
        reason: why it ended early, if it did; set before the end of the block.
        report: what it did, after the block.
    """

    simulation: Simulation
    directory: Path
    clock: PhaseClock
    reason: StopReason | None = None
    report: Report | None = None


def launch(
    config: Config,
    *,
    resume: Resume = "never",
    overwrite: bool = False,
    bar: bool = False,
    clock: PhaseClock | None = None,
    use_cache: bool = True,
    ranks: Communicator | None = None,
    strict: bool = False,
) -> Report:
    """Run a configuration to its last step, or until there is a reason to stop.

    Args:
        config: what to do.
        resume: "never" starts anew, "auto" continues from the newest good checkpoint if there is
            one, a path from that one.
        overwrite: whether results of an earlier run may be replaced; never together with `resume`.
        bar: whether to draw a progress bar.
        clock: adds up the time of each phase.
        use_cache: whether method and parameters may be those that were measured in an earlier run.
        ranks: all of them call this; one alone if not given.
        strict: whether a device that fails is an error, in place of going on without it.

    Raises:
        TetrisError: of any kind, with its exit code; `ElsewhereError` if another rank raises it.
    """
    with underway(
        config,
        resume=resume,
        overwrite=overwrite,
        bar=bar,
        clock=clock,
        use_cache=use_cache,
        ranks=ranks,
        strict=strict,
    ) as run:
        run.reason = run.simulation.run()
    assert run.report is not None
    return run.report


@contextlib.contextmanager
def underway(
    config: Config,
    *,
    resume: Resume | Start = "never",
    overwrite: bool = False,
    bar: bool = False,
    clock: PhaseClock | None = None,
    use_cache: bool = True,
    ranks: Communicator | None = None,
    adapt: Adapt | None = None,
    vary: Vary | None = None,
    stopping: Stopping | None = None,
    strict: bool = False,
    built: Problem | None = None,
) -> Iterator[Underway]:
    """Get a configuration ready to be advanced inside the block, and report after it.

    Args:
        config: as for `launch`, and so are those up to `ranks`.
        resume: likewise.
        overwrite: likewise.
        bar: likewise.
        clock: likewise.
        use_cache: likewise.
        ranks: likewise.
        strict: likewise.
        adapt: changes the problem before it is planned.
        vary: how the simulation opens one like it with other faces.
        stopping: reasons to stop that are listened for elsewhere; if not given, signals are heard
            in the whole block.
        built: the problem, where the caller has built it.
    """
    clock, ranks = clock or PhaseClock(), ranks or Alone()
    with _begin(config, resume, clock, ranks, overwrite=overwrite, heard=stopping) as launched:
        prepared = _prepare(launched, use_cache=use_cache, adapt=adapt, built=built)
        problem, plan = prepared.problem, prepared.plan
        if launched.start.begins:
            log.info("%s", launched.start.begins)
        if not isinstance(resume, Start):  # a run that goes on in memory has been described
            log.info("%s", describe(config, problem, plan))

        with (
            _attach(launched, prepared, vary, bar=bar, strict=strict) as attached,
            open_simulation(problem, plan, step=launched.start.step, **attached) as simulation,
        ):
            # Not before: until here the run may turn out to be impossible, and then earlier results
            # stay.
            if launched.start.state is not None:
                simulation.control.restore(launched.start.state.outputs.get("control"))
            _end_if_asked(launched)
            on_root(ranks, lambda: _clear_the_way(launched, overwrite=overwrite))
            run = Underway(simulation, launched.directory, clock)
            try:
                yield run
            except (Exception, KeyboardInterrupt, SystemExit):
                simulation.leave_failed()
                raise
            simulation.turn.refuse_child()
            if simulation.unsaved:
                simulation.leave()
            if run.reason is None and simulation.step < problem.steps:
                run.reason = StopReason(ExitCode.OK, "nobody asked for more")

        if resume == "auto":
            run.reason = _or_standstill(launched, simulation, run.reason)
        run.report = _report(launched, prepared.machine, simulation, run.reason)


@contextlib.contextmanager
def _begin(
    config: Config,
    resume: Resume | Start,
    clock: PhaseClock,
    ranks: Communicator,
    *,
    overwrite: bool,
    heard: Stopping | None,
) -> Iterator[Launched]:
    """Find out where to begin, and inside the block hear signals and keep other runs away."""
    # From here on a lost rank ends the others within this time.
    ranks.timeout = config.run.mpi_timeout
    # Time that imports and planning took counts as well: limits of a job begin with the process.
    deadline = find_deadline(config.run.max_walltime, elapsed=clock.elapsed)
    stopping = heard or Stopping(speaks=ranks.rank == 0)
    stopping.deadline = deadline
    directory = results.directory_of(config)
    with contextlib.ExitStack() as stack:
        if heard is None:
            stack.enter_context(stopping.listening())
        # The lock is held until the run ends, so that no second run writes into the same folder.
        on_root(ranks, lambda: stack.enter_context(results.locked(directory)))
        start = on_root(ranks, lambda: find_start(config, directory, resume, overwrite=overwrite))

        # Rank 0 has checked it; each rank reads its own part of it.
        checkpoint = everywhere(ranks, lambda: _open(start.path))
        if checkpoint is not None:
            stack.enter_context(checkpoint)
        for sentence in start.sentences:
            log.info("%s", sentence)
        launched = Launched(config, directory, start, checkpoint, stopping, clock, ranks)
        try:
            yield launched
        except StopRequested as stopped:
            # Of several ranks, all have to know.
            if resume == "auto" and (ranks.size == 1 or ranks.ending):
                _refuse_standstill(launched, stopped)
            raise


# A script that puts a job back into the queue whenever it was stopped would do so for ever if the
# job's limit is shorter than planning takes: the second run in a row that makes no step ends with
# another exit code.

_STANDSTILLS = 2
_NO_PROGRESS = (
    "this is run {} in a row that was stopped at step {} without a single step: its limit is "
    "shorter than planning and starting take, so trying again would not help. Give it more time, "
    "or spare it the measurements by compute.method or compute.tuning_budget: 0"
)


def _count_standstills(launched: Launched, *, moved: bool = False) -> str:
    """Why another try would not help; empty if it might."""
    step = launched.start.step
    times = on_root(
        launched.ranks,
        lambda: results.count_standstills(launched.directory, None if moved else step),
    )
    enough = times >= _STANDSTILLS and not moved
    return _NO_PROGRESS.format(times, step) if enough else ""


def _refuse_standstill(launched: Launched, stopped: StopRequested) -> None:
    """Raise `StopRequested` with another exit code if a run that was to be repeated did not even
    begin, and neither did the one before.
    """
    if stopped.exit_code == ExitCode.REQUEUE and (why := _count_standstills(launched)):
        msg = f"{stopped}; {why}"
        raise StopRequested(msg, ExitCode.RESOURCES)


def _or_standstill(
    launched: Launched, simulation: Simulation, reason: StopReason | None
) -> StopReason | None:
    """Why a run ended; with another exit code if neither it nor the one before made a step."""
    # A step that was made resets the count.
    still = simulation.step == launched.start.step
    requeued = reason is not None and reason.exit_code == ExitCode.REQUEUE
    why = _count_standstills(launched, moved=not (still and requeued))
    if reason is None or not why:
        return reason
    return StopReason(ExitCode.RESOURCES, f"{reason.sentence}; {why}")


def _open(path: Path | None) -> Checkpoint | None:
    return None if path is None else open_checkpoint(path, verify=False)


def _prepare(
    launched: Launched, *, use_cache: bool, adapt: Adapt | None, built: Problem | None
) -> PreparedRun:
    """Plan the run, and refuse it if its files do not fit on the disk."""
    with launched.clock.phase("plan"), _interruptible(launched):
        prepared = prepare(
            launched.config,
            launched.ranks,
            checkpoint=launched.checkpoint,
            seconds_left=launched.stopping.seconds_left(),
            use_cache=use_cache,
            adapt=adapt,
            begun=launched.start.state,
            built=built,
        )

    # Before anything of an earlier run is removed.
    on_root(launched.ranks, lambda: _refuse_full_disk(launched, prepared.problem))
    launched.stopping.margin = _saving_seconds(prepared.problem, prepared.plan)
    return prepared


def _refuse_full_disk(launched: Launched, problem: Problem) -> None:
    wanted = results.predicted_bytes(launched.config, problem)
    there = results.written_bytes(launched.directory)
    results.refuse_full_disk(launched.directory, wanted - there)


def _interruptible(launched: Launched) -> contextlib.AbstractContextManager[None]:
    """Let signals end the program at once; one rank of several would leave others waiting."""
    if launched.ranks.size > 1:
        return contextlib.nullcontext()
    return launched.stopping.at_once(NOTHING_DONE)


def _saving_seconds(problem: Problem, plan: Plan) -> float:
    """Time for the last checkpoint and one under way at 100 MB/s, as slow as a busy disk [s]."""
    return 2.0 + (2 if plan.copy_for_checkpoints else 1) * problem.state_bytes / 100e6


def _condition_of(config: Config) -> StopCondition | None:
    until = config.time.until
    if until is None or until.condition is None:
        return None
    return read_condition(until.condition, config.model, config.grid.names)


@contextlib.contextmanager
def _attach(
    launched: Launched, prepared: PreparedRun, vary: Vary | None, *, bar: bool, strict: bool
) -> Iterator[Attachments]:
    """Yield the attachments of the run; rank 0 alone writes and shows the progress."""
    ranks, recovery = launched.ranks, Recovery(prepared.machine, prepared.compute, strict=strict)
    attached = Attachments(
        stopping=launched.stopping,
        clock=launched.clock,
        ranks=ranks,
        recovery=recovery,
        until=launched.config.time.until,
        condition=_condition_of(launched.config),
        change=None if launched.start.state is None else launched.start.state.change,
        moved=None if launched.start.state is None else launched.start.state.outputs.get("moved"),
        vary=vary,
        control=make_control(launched.config, prepared.problem),
    )
    # The plan has checked that a second copy of the state fits into memory.
    beside = AsyncWriter() if prepared.plan.copy_for_checkpoints else None
    divided = _writes_apart(launched)
    meter = everywhere(ranks, lambda: _make_meter(launched, prepared) if ranks.rank == 0 else None)
    writers = everywhere(
        ranks,
        lambda: (
            _make_writers(launched, prepared, beside, divided, meter) if ranks.rank == 0 else None
        ),
    )
    if writers is None:
        yield attached | Attachments(beside=beside)
        return

    outputs, saving = writers
    # After a failed device the run may go back to what is on the disk.
    recovery.latest = saving.newest
    progress = Progress(prepared.problem, launched.start.step, bar=bar)
    with contextlib.ExitStack() as stack:
        stack.callback(progress.close)
        yield attached | Attachments(
            outputs=outputs, saving=saving, progress=progress, meter=meter, beside=beside
        )


def _make_meter(launched: Launched, prepared: PreparedRun) -> Meter | None:
    """A counter of heat for the statistics, if there are any of a body with heat."""
    problem, scheme = prepared.problem.at_rest, prepared.plan.scheme
    if launched.config.output.statistics is None or not has_heat(problem) or scheme == "steady":
        return None
    return Meter(problem, implicit=scheme == "implicit")


def _writes_apart(launched: Launched) -> bool:
    """Whether each rank writes its own part of a checkpoint: as asked, or where it is safe.

    All ranks of one computer see the same files. Several computers may not, and NFS damages files
    that are written from several of them.
    """
    ranks, asked = launched.ranks, launched.config.checkpoint.per_rank
    here = len(ranks.neighbours()) == ranks.size
    return ranks.size > 1 and (here if asked == "auto" else asked)


def _make_writers(
    launched: Launched,
    prepared: PreparedRun,
    beside: AsyncWriter | None,
    divided: bool,
    meter: Meter | None,
) -> tuple[tuple[Output, ...], Checkpoints]:
    config, start = launched.config, launched.start
    problem, plan = prepared.problem, prepared.plan
    run_id = str(uuid.uuid4()) if start.state is None else start.state.run_id

    # The pictures compare with the state at step 0, which a resumed run does not begin with.
    # A steady state is all that its run writes.
    written = start.state is None and plan.scheme != "steady"
    seen_first = None if written else _first_state(config, problem.dt)
    outputs = make_outputs(
        config,
        problem.seen,
        launched.directory,
        initial=seen_first,
        run_id=run_id,
        implicit=plan.scheme == "implicit",
        meter=meter,
    )

    states = RunStates(
        launched.text, problem, plan, launched.clock, earlier=start.state, run_id=run_id
    )
    within = start.path is not None and is_within(start.path, launched.directory)
    saving = Checkpoints.of(
        config.checkpoint,
        launched.directory / results.CHECKPOINTS,
        states.at,
        problem=problem,
        settle=_nothing if beside is None else beside.settle,
        saved_step=start.step if within else None,
        divided=divided,
    )
    return outputs, saving


def _first_state(config: Config, dt: float) -> InitialField:
    """The state at step 0 as people see it, built when it is asked for: not every run draws it."""
    built = functools.cache(lambda: config.build(dt=dt).seen.initial)
    return lambda slab: built()(slab)


def _nothing() -> None:
    """A stand-in where there is nothing to wait for."""


def _end_if_asked(launched: Launched) -> None:
    """End all ranks if a signal asked one of them to, before anything is written."""
    ranks = launched.ranks
    reasons = [
        reason for reason in ranks.collect(launched.stopping.signalled) if reason is not None
    ]
    if reasons:
        ranks.ending = True
        raise stop_request(reasons[0], NOTHING_DONE)


def _clear_the_way(launched: Launched, *, overwrite: bool) -> None:
    """Make room for what the run writes, and say what it is."""
    directory = launched.directory
    if overwrite:
        results.clear(directory)
    for name in (results.CONFIG, results.REPORT_JSON, results.REPORT_TEXT):
        remove_parts(directory, f"{name}.")  # of a run that was killed
    remove_parts(directory / results.CHECKPOINTS)
    remove_orphans(directory / results.CHECKPOINTS)
    # Else a crash now would lead to a state after this one.
    forget_later(directory / results.CHECKPOINTS, launched.start.step)
    atomic_text(directory / results.CONFIG, launched.text)


def _report(
    launched: Launched, machine: Machine, simulation: Simulation, reason: StopReason | None
) -> Report:
    """Return the report of the run and write it."""
    first_step, directory = launched.start.step, launched.directory
    report = make_report(
        simulation.problem,
        simulation.plan,
        machine,
        launched.clock,
        first_step=first_step,
        step=simulation.step,
        ended=_ended(simulation, reason),
        exit_code=ExitCode.OK if reason is None else reason.exit_code,
        outputs=str(directory),
        traffic=simulation.exchange.traffic,
        ranks=launched.ranks,
        busy_s=simulation.busy_s,
        events=simulation.control.lines(),
        heat=on_root(
            launched.ranks, lambda: read_audit(directory, simulation.step, _over(launched))
        ),
    )

    made_steps = simulation.step > first_step
    on_root(launched.ranks, lambda: _write_report(report, directory, made_steps=made_steps))
    return report


def _over(launched: Launched) -> tuple[str, ...]:
    """Names of the parts that have statistics of their own."""
    statistics = launched.config.output.statistics
    return () if statistics is None else tuple(statistics.over)


def _ended(simulation: Simulation, reason: StopReason | None) -> str:
    said = "Done" if reason is None else reason.said
    if not simulation.lost:
        return said
    return f"{said}, without {listed(simulation.lost, 'and')}, which failed on the way"


def _write_report(report: Report, directory: Path, *, made_steps: bool) -> None:
    if not made_steps and (directory / results.REPORT_JSON).exists():
        return  # that of the run that made the steps stays
    atomic_text(directory / results.REPORT_JSON, json.dumps(report.as_json(), indent=1) + "\n")
    atomic_text(directory / results.REPORT_TEXT, report.as_text() + "\n")
