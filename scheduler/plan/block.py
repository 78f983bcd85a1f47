"""How many steps are made between two looks at the clock and two exchanges of halos?"""

from __future__ import annotations

import math

from tetris_sim.errors import ConfigError
from tetris_sim.method import STEPS_PER_BLOCK, Parameters
from tetris_sim.problem import Problem
from tetris_sim.scheduler.tuning.choice import Speed
from tetris_sim.scheduler.tuning.measure import steps_per_block
from tetris_sim.schema import ComputeSection

_BLOCK_SECONDS = 0.2  # a signal, the progress bar and the clock are looked at this often
_MAX_BLOCK = 1 << 20
# share of the work that may be done twice so that a method can make its own number of steps
_REDUNDANT = 0.05


def choose_time_block(
    problem: Problem, speed: Speed, parameters: Parameters, *, workers: int, compute: ComputeSection
) -> tuple[int, str]:
    """(steps per block, why): short enough to stay responsive; with neighbours, where redundancy
    and latency balance.

    Args:
        problem: what is advanced.
        speed: of one worker.
        parameters: of the method, which may make several steps at a time.
        workers: between which the grid is split.
        compute: what was asked for.

    Raises:
        ConfigError: the grid has too few planes for so many workers.
    """
    inner = steps_per_block(parameters)
    step_seconds = problem.grid.n_points * problem.n_fields / (speed.points_per_second * workers)
    responsive = responsive_block(problem, speed.points_per_second * workers)
    if workers == 1:
        return _block_alone(responsive, inner, compute)
    radius = problem.stencil.radii[0]
    room = problem.grid.shape[0] // (
        workers * max(radius, 1)
    )  # a halo must fit into the neighbour's slab
    if room < 1:
        msg = (
            f"{workers} workers cannot share {problem.grid.shape[0]} planes along "
            f"{problem.grid.axis_names[0]}: each needs at least {radius}. Name fewer devices."
        )
        raise ConfigError(msg)
    if compute.time_block != "auto":
        block = min(compute.time_block, room)
        cut = ", cut to what fits" if block < compute.time_block else ""
        return block, f"Time block of {block} steps, as asked{cut}{_inner_cut(block, inner)}."
    # A block of k steps costs latency / k per step and (k - 1) * radius redundant planes per cut on
    # average.
    plane_seconds = step_seconds / problem.grid.shape[0] * workers
    latency = max(speed.latency, 1e-6)
    balanced = math.sqrt(latency / max(radius * plane_seconds, 1e-12))
    block = max(1, min(int(balanced), room, responsive))
    if inner <= room and workers * (inner - 1) * radius <= _REDUNDANT * problem.grid.shape[0]:
        block = max(inner, block // inner * inner)
    return block, (
        f"Time block of {block} steps: an exchange costs {latency * 1e6:.0f} us, "
        f"a redundant plane {plane_seconds * 1e6:.2g} us a step{_inner_cut(block, inner)}."
    )


def responsive_block(problem: Problem, points_per_second: float) -> int:
    """Steps after which a run should look at the clock and at signals again."""
    step_seconds = problem.grid.n_points * problem.n_fields / points_per_second
    return min(_MAX_BLOCK, max(1, int(_BLOCK_SECONDS / step_seconds)))


def divide_block(parameters: Parameters, block: int) -> Parameters:
    """The parameters with a number of steps at a time that divides a block, if one that is large
    enough does.

    >>> steps = (1, 8, 10, 16, 24, 40)
    >>> [divide_block({"steps_per_block": n}, 24)["steps_per_block"] for n in steps]
    [1, 8, 8, 12, 24, 24]
    """
    inner = steps_per_block(parameters)
    if STEPS_PER_BLOCK not in parameters or block % inner == 0:
        return parameters
    divisor = max(n for n in range(1, min(inner, block) + 1) if block % n == 0)
    return {
        **parameters,
        STEPS_PER_BLOCK: divisor if 2 * divisor >= min(inner, block) else min(inner, block),
    }


def fit_to_block(parameters: Parameters, block: int, *, workers: int) -> Parameters:
    """The parameters with no more steps at a time than a halo lasts for."""
    if workers > 1 and steps_per_block(parameters) > block:
        return {**parameters, STEPS_PER_BLOCK: block}
    return parameters


def _block_alone(responsive: int, inner: int, compute: ComputeSection) -> tuple[int, str]:
    if compute.time_block != "auto":
        rest = compute.time_block % inner
        odd = (
            f"; the method makes {inner} at a time, so each block ends with a shorter part"
            if rest
            else ""
        )
        return compute.time_block, f"Time block of {compute.time_block} steps, as asked{odd}."
    block = max(inner, responsive // inner * inner)
    times = block // inner
    whole = (
        ""
        if inner == 1
        else f", {times} times the method's {inner}"
        if times > 1
        else ", the method's own"
    )
    return block, (
        f"Time block of {block} steps{whole}: one worker needs no exchange, about {_BLOCK_SECONDS} "
        "s keep it responsive."
    )


def _inner_cut(block: int, inner: int) -> str:
    return f"; the method makes {block} at a time instead of {inner}" if block < inner else ""
