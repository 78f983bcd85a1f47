"""Block lengths: the number of steps between two checks of clock and signals, and between two halo
exchanges.
"""

from __future__ import annotations

import math

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import AXIS_NAMES
from tetris_sim.model.method import STEPS_PER_BLOCK, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.facts.domain import Capacity, Domain
from tetris_sim.scheduler.facts.shares import Reason, Scheme, about

BLOCK_SECONDS = 0.2  # between two checks of signals, progress bar and clock
_MAX_BLOCK = 1 << 20
# Largest share of redundant work for which the block is rounded to the method's depth.
_REDUNDANT = 0.05


def responsive_block(
    n_values: int, points_per_second: float, seconds: float = BLOCK_SECONDS
) -> int:
    """Number of steps after which a run should check clock and signals again.

    Args:
        n_values: values of the grid, all fields.
        points_per_second: combined rate of all workers.
        seconds: time between two checks [s].
    """
    return min(_MAX_BLOCK, max(1, int(seconds * points_per_second / n_values)))


def block_alone(n_values: int, worker: Capacity, inner: int, asked: int | None) -> tuple[int, str]:
    """(steps per block of a worker without neighbours, the reason): short enough to stay
    responsive.

    Args:
        n_values: values of the grid, all fields.
        worker: capacity of the worker.
        inner: steps that its method makes at a time.
        asked: requested steps per block; None if open.
    """
    if asked is not None:
        rest = asked % inner
        odd = (
            f"; the method makes {inner} at a time, so each block ends with a shorter part"
            if rest
            else ""
        )
        return asked, f"Time block of {asked} steps, as asked{odd}."

    block = max(inner, responsive_block(n_values, worker.points_per_second) // inner * inner)
    times = block // inner
    whole = (
        ""
        if inner == 1
        else f", {times} times the method's {inner}"
        if times > 1
        else ", the method's own"
    )
    return block, (
        f"Time block of {block} steps{whole}: one worker needs no exchange, about {BLOCK_SECONDS} "
        "s keep it responsive."
    )


def block_of_teams(
    domain: Domain, team: Capacity, teams: int, asked: int | None
) -> tuple[int, str]:
    """(steps per block of equal teams of threads, the reason): redundant work balances latency.

    Messages between teams are copies within one memory and are not measured; an exchange costs what
    it takes all teams to end a block and start the next.

    Args:
        domain: grid that is cut along its first axis.
        team: capacity of the first team.
        teams: number of teams.
        asked: requested steps per block; None if open.

    Raises:
        ConfigError: the grid has too few planes for this many workers.
    """
    planes, radius, inner = domain.shape[0], domain.radii[0], team.depth
    room = planes // (teams * max(radius, 1))  # a halo must fit into the neighbour's slab
    if room < 1:
        msg = (
            f"{teams} workers cannot share {planes} planes along "
            f"{AXIS_NAMES[len(domain.shape) - 1]}: each needs at least {radius}. Name fewer "
            "devices."
        )
        raise ConfigError(msg)

    if asked is not None:
        block = min(asked, room)
        cut = ", cut to what fits" if block < asked else ""
        return block, f"Time block of {block} steps, as asked{cut}{_inner_cut(block, inner)}."

    # A block of k steps costs latency / k per step and (k - 1) * radius redundant planes per cut on
    # average; their sum is least at the square root below.
    plane_seconds = domain.n_values / team.points_per_second / planes
    latency = max(team.start, 1e-6)
    balanced = math.sqrt(latency / max(radius * plane_seconds, 1e-12))
    responsive = responsive_block(domain.n_values, team.points_per_second * teams)
    block = max(1, min(int(balanced), room, responsive))
    # Round to whole multiples of the method's depth, if the redundant planes of that many steps are
    # few.
    if inner <= room and teams * (inner - 1) * radius <= _REDUNDANT * planes:
        block = max(inner, block // inner * inner)
    return block, (
        f"Time block of {block} steps: an exchange costs {latency * 1e6:.0f} us, "
        f"a redundant plane {plane_seconds * 1e6:.2g} us a step{_inner_cut(block, inner)}."
    )


def divide_block(parameters: Parameters, block: int) -> Parameters:
    """The parameters with a number of steps at a time that divides the block, if a large enough
    divisor exists.

    >>> steps = (1, 8, 10, 16, 24, 40)
    >>> [divide_block({"steps_per_block": n}, 24)["steps_per_block"] for n in steps]
    [1, 8, 8, 12, 24, 24]
    """
    inner = parameters.get(STEPS_PER_BLOCK, 1)
    if STEPS_PER_BLOCK not in parameters or block % inner == 0:
        return parameters
    # If no divisor reaches half of the method's depth, the depth stays and the block ends with a
    # shorter part.
    divisor = max(n for n in range(1, min(inner, block) + 1) if block % n == 0)
    return {
        **parameters,
        STEPS_PER_BLOCK: divisor if 2 * divisor >= min(inner, block) else min(inner, block),
    }


def _inner_cut(block: int, inner: int) -> str:
    return f"; the method makes {block} at a time instead of {inner}" if block < inner else ""


# Adaptive steps, which consist of substeps: exceptions to the rules above.


def scheme_of(problem: Problem) -> Scheme:
    """Time-stepping scheme of workers that step through a problem."""
    return "explicit" if problem.substeps is None else "adaptive"


def asked_block(problem: Problem, compute: ComputeSection) -> int | None:
    """Steps between two exchanges if they do not follow from speeds: as requested, or 1 with
    substeps, whose errors all workers compare after each.
    """
    if problem.substeps is not None:
        return 1
    return None if compute.time_block == "auto" else compute.time_block


def why_adaptive(problem: Problem) -> tuple[Reason, ...]:
    """Reason for the block of adaptive steps, whose number is unknown in advance; none for fixed
    steps.
    """
    if (substeps := problem.substeps) is None:
        return ()
    sentence = (
        f"time.tolerance: each step of {problem.dt:.6g} s is made of substeps with errors of "
        f"{substeps.tolerance:g} at most; how many is known afterwards, and the times here are "
        "those of one each. All workers look at the errors after each, so blocks have one step."
    )
    return about("block", (sentence,))
