"""What a run would do: its problem, the machine, the plan. `plan` says it, `run` goes on."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from tetris_sim.choosing import Proposal, Setting, choose_scheme
from tetris_sim.config import Config
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import UnsupportedError
from tetris_sim.half_precision import half_precision_notes
from tetris_sim.model.problem import Problem
from tetris_sim.outputs.checkpoint import Checkpoint, problem_digest
from tetris_sim.pair_notes import pair_notes
from tetris_sim.resuming import build_problem, method_of
from tetris_sim.scheduler.comm.agreement import everywhere, on_root
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.machine.machine import Machine, find_machine
from tetris_sim.support.progress import format_time
from tetris_sim.support.wording import count_threads

Adapt = Callable[[Problem], Problem]  # before it is planned

_TUNING_SHARE = 0.1  # of the time until a wall-time limit
_LEAST_TUNING = 0.1  # seconds; 0 would mean not to measure
# seconds; waiting until every method had its turn takes less on the slowest machines seen
_PATIENT_TUNING = 60.0


@dataclass(frozen=True)
class Prepared:
    """What a run is going to do.

    Attributes:
        problem: the mathematics, the same bits on every rank.
        machine: the computer of this rank.
        compute: the section of the configuration, with no more time for tuning than there is.
        plan: the decisions, the same on every rank, and what float16 costs among its notes.
        proposals: what each scheme that was looked at would do.
    """

    problem: Problem
    machine: Machine
    compute: ComputeSection
    plan: Plan
    proposals: tuple[Proposal, ...]


def prepare(
    config: Config,
    ranks: Communicator,
    *,
    checkpoint: Checkpoint | None = None,
    seconds_left: float = math.inf,
    use_cache: bool = True,
    compare: bool = False,
    adapt: Adapt | None = None,
) -> Prepared:
    """Build the problem, look at the machine, plan.

    Args:
        config: what to do.
        ranks: all of them call this.
        checkpoint: what the run continues from, if it does; its method is kept.
        seconds_left: time until the run must have stopped [s].
        use_cache: whether method and parameters may be those that were measured in an earlier run.
        compare: whether schemes are looked at that are not asked for.
        adapt: changes the problem before it is planned; for one process.

    Raises:
        TetrisError: it cannot be done here, or does not fit.
    """
    problem = _build_the_same(config, checkpoint, ranks)
    if adapt is not None:
        problem = adapt(problem)
    machine = everywhere(ranks, find_machine)
    compute = spare_time(config.compute, min(ranks.collect(seconds_left)))
    begun_with = None if checkpoint is None else method_of(checkpoint.state)
    first = 0 if checkpoint is None else checkpoint.state.step
    setting = Setting(config, problem, machine, compute, ranks, first, begun_with, use_cache)
    plan, proposals = choose_scheme(setting, compare=compare)
    notes = on_root(ranks, lambda: half_precision_notes(config, problem, plan))
    notes = (*notes, *pair_notes(problem, plan))
    if checkpoint is None:
        notes = (*notes, *on_root(ranks, lambda: model_notes(config)))
    plan = dataclasses.replace(plan, notes=(*plan.notes, *notes))
    return Prepared(problem, machine, compute, plan, proposals)


def model_notes(config: Config) -> tuple[str, ...]:
    """What the model has to say of a configuration that is right."""
    return tuple(config.model.notes(config)) if hasattr(config.model, "notes") else ()


def spare_time(compute: ComputeSection, seconds_left: float) -> ComputeSection:
    """The section, tuning for no more than a small part of the time that a run has left."""
    spare = max(_TUNING_SHARE * seconds_left, _LEAST_TUNING)
    if spare > (_PATIENT_TUNING if compute.tuning_budget == "auto" else compute.tuning_budget):
        return compute
    return compute.model_copy(update={"tuning_budget": min(compute.tuning_seconds, spare)})


def describe(config: Config, problem: Problem, plan: Plan) -> str:
    """What is about to happen, in two lines, and what must be known of it."""
    shape = " x ".join(str(n) for n in reversed(problem.grid.shape))
    methods = ", ".join(dict.fromkeys(share.method.name for share in plan.shares))
    gpus = ", ".join(share.product for share in plan.shares if share.product)
    threads = count_threads(sum(share.threads for share in plan.shares))
    device = f"on {gpus}" if gpus else f"with {threads}"
    n_ranks = len({share.rank for share in plan.shares})
    together = f" of {n_ranks} ranks" if n_ranks > 1 else ""

    steps = f"{problem.steps} steps of {format_time(problem.dt)}"
    if plan.scheme == "steady":
        steps = "steady state"
    what = f"{config.title or config.model.type}: {shape} points, {problem.dtype}, {steps}"
    return "\n".join((what, f"{methods} {device}{together}", *plan.notes))


def _build_the_same(config: Config, checkpoint: Checkpoint | None, ranks: Communicator) -> Problem:
    """The problem; refused if its bits are not the same on every rank."""
    if ranks.size == 1:
        return build_problem(config, checkpoint)
    dt = on_root(ranks, lambda: build_problem(config, checkpoint).dt)
    problem = everywhere(ranks, lambda: build_problem(config, checkpoint, dt=dt))
    digests = ranks.collect((problem_digest(problem), problem.steps))
    on_root(ranks, lambda: _refuse_different(digests))
    return problem


def _refuse_different(digests: list[tuple[str, int]]) -> None:
    different = [rank for rank, digest in enumerate(digests) if digest != digests[0]]
    if different:
        msg = (
            f"rank {different[0]} builds another problem from the configuration than rank 0: "
            "do all of them read the same files, with the same versions of Python packages?"
        )
        raise UnsupportedError(msg)
