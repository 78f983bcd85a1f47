"""Launch: a run from its configuration to its report, in its results directory, from the start or
from a checkpoint.

Every rank walks this way. What is found out or written in one place is found out and written by
rank 0, and the others are told; where one fails, all end alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

from tetris_sim import results
from tetris_sim.checkpoint import Checkpoint, forget_later, open_checkpoint, problem_digest
from tetris_sim.checkpoint.saving import Checkpoints
from tetris_sim.clock import PhaseClock
from tetris_sim.config import Config
from tetris_sim.errors import ExitCode, UnsupportedError
from tetris_sim.files import atomic_text, remove_parts
from tetris_sim.half_precision import half_precision_notes
from tetris_sim.outputs.make import make_outputs
from tetris_sim.outputs.output import Output
from tetris_sim.problem import Problem
from tetris_sim.progress import Progress, format_time
from tetris_sim.report import Report, make_report
from tetris_sim.resuming import Resume, Start, build_problem, find_start, is_within, method_of
from tetris_sim.run_state import RunStates
from tetris_sim.scheduler.comm.agreement import everywhere, on_root
from tetris_sim.scheduler.comm.communicator import Alone, Communicator
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.planner import plan_together
from tetris_sim.scheduler.run.recovery import Recovery
from tetris_sim.schema import ComputeSection
from tetris_sim.simulation import Simulation, open_simulation
from tetris_sim.stopping import NOTHING_DONE, Stopping, StopReason, find_deadline, stop_request
from tetris_sim.wording import count_threads

log = logging.getLogger("tetris_sim")

_TUNING_SHARE = 0.1  # of the time until a wall-time limit
_LEAST_TUNING = 0.1  # seconds; 0 would mean not to measure
_PATIENT_TUNING = (
    60.0  # seconds; waiting until every method had its turn takes less on the slowest machines seen
)


@dataclass(frozen=True)
class Launched:
    """What stays the same for the whole of a run.

    Attributes:
        config: what to do.
        directory: where results go.
        start: where it begins.
        stopping: reasons to stop early.
        clock: adds up the time of each phase.
        ranks: who takes part.
    """

    config: Config
    directory: Path
    start: Start
    stopping: Stopping
    clock: PhaseClock
    ranks: Communicator


def launch(
    config: Config,
    *,
    resume: Resume = "never",
    overwrite: bool = False,
    bar: bool = False,
    clock: PhaseClock | None = None,
    use_cache: bool = True,
    ranks: Communicator | None = None,
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

    Raises:
        TetrisError: of any kind, with its exit code; `ElsewhereError` if another rank raises it.
    """
    ranks, clock = ranks or Alone(), clock or PhaseClock()
    deadline = find_deadline(config.run.max_walltime, elapsed=clock.elapsed)
    stopping = Stopping(deadline, speaks=ranks.rank == 0)
    directory = results.directory_of(config)
    with stopping.listening(), contextlib.ExitStack() as stack:

        def begin() -> Start:
            stack.enter_context(results.locked(directory))
            return find_start(config, directory, resume, overwrite=overwrite)

        start = on_root(ranks, begin)
        checkpoint = everywhere(ranks, lambda: _open_again(start))
        if checkpoint is not None:
            stack.enter_context(checkpoint)
        launched = Launched(config, directory, start, stopping, clock, ranks)
        return _run(launched, checkpoint, overwrite=overwrite, bar=bar, use_cache=use_cache)


def _run(
    launched: Launched,
    checkpoint: Checkpoint | None,
    *,
    overwrite: bool,
    bar: bool,
    use_cache: bool,
) -> Report:
    config, start, clock, ranks = launched.config, launched.start, launched.clock, launched.ranks
    for sentence in start.sentences:
        log.info("%s", sentence)
    with clock.phase("plan"), _interruptible(launched):
        problem = _build_the_same(config, checkpoint, ranks)
        machine = everywhere(ranks, find_machine)
        compute = spare_time(config.compute, min(ranks.collect(launched.stopping.seconds_left())))
        plan = plan_together(
            problem, machine, compute, ranks, begun_with=method_of(start.state), use_cache=use_cache
        )
        costs = on_root(ranks, lambda: half_precision_notes(config, problem, plan))
        plan = dataclasses.replace(plan, notes=(*plan.notes, *costs))
    on_root(ranks, lambda: _refuse_full_disk(launched, problem))
    log.info("%s", "\n".join((describe(config, problem, plan), *plan.notes)))
    launched.stopping.margin = _saving_seconds(problem, plan)
    simulation, reason = _simulate(
        launched, problem, plan, Recovery(machine, compute), overwrite=overwrite, bar=bar
    )
    report = make_report(
        problem,
        simulation.plan,
        machine,
        clock,
        first_step=start.step,
        step=simulation.step,
        ended="Done" if reason is None else f"Stopped early: {reason.sentence}",
        exit_code=ExitCode.OK if reason is None else reason.exit_code,
        outputs=str(launched.directory),
        traffic=simulation.exchange.traffic,
        ranks=ranks,
        busy_s=simulation.busy_s,
    )
    made_steps = simulation.step > start.step
    on_root(ranks, lambda: _write_report(report, launched.directory, made_steps=made_steps))
    return report


def _simulate(
    launched: Launched,
    problem: Problem,
    plan: Plan,
    recovery: Recovery,
    *,
    overwrite: bool,
    bar: bool,
) -> tuple[Simulation, StopReason | None]:
    """The run itself, with everything that belongs to a results directory: (the end of it, why not
    the last step).
    """
    start, clock, ranks = launched.start, launched.clock, launched.ranks
    outputs: tuple[Output, ...] = ()
    saving, progress = None, None
    with contextlib.ExitStack() as stack:
        writers: list[tuple[tuple[Output, ...], Checkpoints]] = []
        on_root(ranks, lambda: writers.append(_make_writers(launched, problem, plan)))
        if writers:
            outputs, saving = writers[0]
            recovery.latest = saving.newest
            progress = Progress(problem, start.step, bar=bar)
            stack.callback(
                saving.abandon
            )  # a run that ended has nothing under way; one that failed must not write on
            stack.callback(progress.close)
        with open_simulation(
            problem,
            plan,
            outputs=outputs,
            saving=saving,
            stopping=launched.stopping,
            progress=progress,
            clock=clock,
            step=start.step,
            ranks=ranks,
            recovery=recovery,
        ) as simulation:
            # Not before: until here the run may turn out to be impossible, and then earlier results
            # stay.
            _end_if_asked(launched)
            on_root(ranks, lambda: _clear_the_way(launched, overwrite=overwrite))
            reason = simulation.run()
            return simulation, reason


def _make_writers(
    launched: Launched, problem: Problem, plan: Plan
) -> tuple[tuple[Output, ...], Checkpoints]:
    """Outputs and checkpoints, for rank 0."""
    config, start = launched.config, launched.start
    run_id = str(uuid.uuid4()) if start.state is None else start.state.run_id
    # The pictures compare with the state at step 0, which a resumed run does not begin with.
    first = None if start.state is None else config.build(dt=problem.dt).initial
    outputs = make_outputs(config, problem, launched.directory, initial=first, run_id=run_id)
    states = RunStates(config, problem, plan, launched.clock, earlier=start.state, run_id=run_id)
    within = start.path is not None and is_within(start.path, launched.directory)
    saving = Checkpoints.of(
        config.checkpoint,
        launched.directory / results.CHECKPOINTS,
        states.at,
        problem=problem,
        copy=plan.copy_for_checkpoints,
        saved_step=start.step if within else None,
        divided=launched.ranks.size > 1 and config.checkpoint.per_rank,
    )
    return outputs, saving


def spare_time(compute: ComputeSection, seconds_left: float) -> ComputeSection:
    """The section with no more time for tuning than a small part of what a run with a time limit
    has.
    """
    spare = max(_TUNING_SHARE * seconds_left, _LEAST_TUNING)
    if spare > (_PATIENT_TUNING if compute.tuning_budget == "auto" else compute.tuning_budget):
        return compute
    return compute.model_copy(update={"tuning_budget": min(compute.tuning_seconds, spare)})


def describe(config: Config, problem: Problem, plan: Plan) -> str:
    """What is about to happen, in two lines."""
    shape = " x ".join(str(n) for n in reversed(problem.grid.shape))
    methods = ", ".join(dict.fromkeys(share.method.name for share in plan.shares))
    gpus = ", ".join(share.product for share in plan.shares if share.product)
    device = (
        f"on {gpus}"
        if gpus
        else f"with {count_threads(sum(share.threads for share in plan.shares))}"
    )
    n_ranks = len({share.rank for share in plan.shares})
    together = f" of {n_ranks} ranks" if n_ranks > 1 else ""
    return (
        f"{config.title or config.model.type}: {shape} points, {problem.dtype}, {problem.steps} "
        f"steps of {format_time(problem.dt)}\n{methods} {device}{together}"
    )


def wants_bar(*, quiet: bool, no_progress: bool) -> bool:
    """Whether to draw a progress bar: on a terminal, unless told not to."""
    return sys.stderr.isatty() and not quiet and not no_progress


def _open_again(start: Start) -> Checkpoint | None:
    """The checkpoint to continue from, which rank 0 has checked; each rank reads its own part of
    it.
    """
    return None if start.path is None else open_checkpoint(start.path, verify=False)


def _build_the_same(config: Config, checkpoint: Checkpoint | None, ranks: Communicator) -> Problem:
    """The problem; the same bits on every rank."""
    dt = on_root(ranks, lambda: build_problem(config, checkpoint).dt) if ranks.size > 1 else None
    problem = everywhere(ranks, lambda: build_problem(config, checkpoint, dt=dt))
    digests = ranks.collect((problem_digest(problem), problem.steps)) if ranks.size > 1 else []

    def compare() -> None:
        different = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
        if different:
            msg = (
                f"rank {different[0]} builds another problem from the configuration than rank 0: "
                "do all of them read the same files, with the same versions of Python packages?"
            )
            raise UnsupportedError(msg)

    on_root(ranks, compare)
    return problem


def _interruptible(launched: Launched) -> contextlib.AbstractContextManager[None]:
    """Let signals end the program at once. One rank of several would leave the others waiting for
    it.
    """
    return (
        launched.stopping.at_once(NOTHING_DONE)
        if launched.ranks.size == 1
        else contextlib.nullcontext()
    )


def _end_if_asked(launched: Launched) -> None:
    """End all ranks if a signal asked one of them to, before anything is written."""
    asked = [
        reason
        for reason in launched.ranks.collect(launched.stopping.signalled)
        if reason is not None
    ]
    if asked:
        launched.ranks.ending = True
        raise stop_request(asked[0], NOTHING_DONE)


def _refuse_full_disk(launched: Launched, problem: Problem) -> None:
    needed = results.predicted_bytes(launched.config, problem) - results.written_bytes(
        launched.directory
    )
    results.refuse_full_disk(launched.directory, needed)


def _clear_the_way(launched: Launched, *, overwrite: bool) -> None:
    """Make room for what the run writes, and say what it is."""
    config, directory = launched.config, launched.directory
    if overwrite:
        results.clear(directory)
    for name in (results.CONFIG, results.REPORT_JSON, results.REPORT_TEXT):
        remove_parts(directory, f"{name}.")  # of a run that was killed
    # Else a crash now would lead to a state after this one.
    forget_later(directory / results.CHECKPOINTS, launched.start.step)
    atomic_text(directory / results.CONFIG, config.resolved_text())


def _write_report(report: Report, directory: Path, *, made_steps: bool) -> None:
    if not made_steps and (directory / results.REPORT_JSON).exists():
        return  # that of the run that made the steps stays
    atomic_text(directory / results.REPORT_JSON, json.dumps(report.as_json(), indent=1) + "\n")
    atomic_text(directory / results.REPORT_TEXT, report.as_text() + "\n")


def _saving_seconds(problem: Problem, plan: Plan) -> float:
    """Time to leave for the last checkpoint and one that is being written: at 100 MB/s, as slow as
    a busy disk.
    """
    return 2.0 + (2 if plan.copy_for_checkpoints else 1) * problem.state_bytes / 100e6
