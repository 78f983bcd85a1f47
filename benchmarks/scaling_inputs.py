"""What the scaling model is fed with: rates and latencies from results that were measured, the rest
as assumptions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.device_goals import Measured, measurements
from benchmarks.scaling import Cluster, Prediction, largest_piece, on_grid, predict
from tetris_sim.bench.result import read_result
from tetris_sim.bench.timing import random_problem
from tetris_sim.model.method import STEPS_PER_BLOCK
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.facts.shares import Link

NVLINK = 450e9
"""Bytes per second from one H200 to another: half of NVIDIA's 900 GB/s, which are both ways
together.
"""
NETWORK = 50e9
"""Bytes per second of a GPU's own port of 400 Gbit/s, of which a DGX H200 has one for each GPU."""
HOP = 5e-6
"""Seconds of a short message between computers: two to three times what two neighbours on such a
network need.
"""
SOFTWARE = 2e-5
"""Seconds that a message would cost in software if it were not sent from Python: what-if only."""
GPUS_EACH = 8

STENCILS = {"heat-2d": 32768, "heat-3d": 1024}
"""Those that are predicted, with the points along each axis that fill a GPU."""
_MESSAGES = 2  # of a rank that has two neighbours
_CALIBRATED_BY = "heat-2d"


@dataclass(frozen=True)
class Inputs:
    """All that was measured.

    Attributes:
        rates: points per second of one GPU by points, for each stencil.
        depths: steps that its kernels make at a time, for each stencil.
        software: what a message costs between two ranks of one computer beside its bytes [s].
        staging: bytes per second from the GPU to the host and back at the same time, each way.
        calibrated_by: the run from which `software` comes.
        pairs: all that was measured on several GPUs.
    """

    rates: Mapping[str, Mapping[int, float]]
    depths: Mapping[str, int]
    software: float
    staging: float
    calibrated_by: Measured
    pairs: tuple[Measured, ...]

    def today(self, stencil: str) -> Cluster:
        """Messages between computers go through the memory of both hosts, one copy after the
        other.
        """
        near = Link(self.software, 1 / NVLINK)
        far = Link(self.software + HOP, 2 / self.staging + 1 / NETWORK)
        return Cluster(self.rates[stencil], self.depths[stencil], near, far, HOP, GPUS_EACH)

    def direct(self, stencil: str, *, beside: bool = False) -> Cluster:
        """What if messages went from GPU to GPU on the network, and cost less in software? And if
        they travelled beside the computation?
        """
        short = min(SOFTWARE, self.software)
        near, far = Link(short, 1 / NVLINK), Link(short + HOP, 1 / NETWORK)
        rates, depth = self.rates[stencil], self.depths[stencil]
        return Cluster(rates, depth, near, far, HOP, GPUS_EACH, beside)


def read_inputs(results: Sequence[Mapping[str, Any]]) -> Inputs:
    """From results of `bench devices` and `bench gpu --sweep`.

    Raises:
        ValueError: something was not measured.
    """
    every = measurements(read_result(result) for result in results if "devices" in result)
    alone = [
        m for m in every if m.gpus == 1 and m.all_gpus and not m.streamed and m.case.ranks == 1
    ]
    rates: dict[str, dict[int, float]] = {name: dict(_swept(results, name)) for name in STENCILS}
    depths = {}
    for m in sorted((m for m in alone if m.case.stencil in STENCILS), key=lambda m: m.rate):
        rates[m.case.stencil][m.points] = m.rate  # the fastest of equal ones comes last
        depths[m.case.stencil] = m.row.shares[0].parameters[STEPS_PER_BLOCK]
    pairs = tuple(m for m in every if m.gpus > 1 and m.all_gpus and m.case.stencil in STENCILS)
    by_ranks = [m for m in pairs if m.case.ranks == m.gpus and m.case.stencil == _CALIBRATED_BY]
    streams = [rate for m in every if m.streamed for rate in _staging(m)]
    if not (by_ranks and streams and set(depths) == set(STENCILS)):
        msg = (
            f"needs one GPU with each of {list(STENCILS)}, a streamed grid, and {_CALIBRATED_BY} "
            "on a rank per GPU"
        )
        raise ValueError(msg)
    first = min(by_ranks, key=lambda m: m.gpus)
    return Inputs(rates, depths, _software(first), max(streams), first, pairs)


def small_problem(stencil: str) -> Problem:
    """A periodic problem to be put on any grid."""
    ndim = int(stencil.split("-")[1][0])
    return random_problem(stencil, (9,) * ndim, "float64", "equal", "periodic", steps=1 << 30)


def measured_exchange(m: Measured) -> float:
    """Seconds of an exchange."""
    return m.row.exchange_share * m.row.time_block * m.points / m.rate


def predict_measured(m: Measured, inputs: Inputs) -> Prediction | None:
    """What the model says about a set of GPUs that was measured, with the block that it had."""
    problem = on_grid(small_problem(m.case.stencil), m.case.shape)
    parts = (m.gpus, *(1,) * (problem.grid.ndim - 1))
    return predict(problem, parts, inputs.today(m.case.stencil), m.row.time_block)


def _software(m: Measured) -> float:
    problem = on_grid(small_problem(m.case.stencil), m.case.shape)
    piece = largest_piece(problem, (m.gpus, *(1,) * (problem.grid.ndim - 1)), m.row.time_block)
    n_bytes = (
        piece.halo[0][0] * problem.grid.n_points // problem.grid.shape[0] * problem.dtype.itemsize
    )
    return max(0.0, measured_exchange(m) / _MESSAGES - n_bytes / NVLINK)


def _staging(m: Measured) -> list[float]:
    """Of the plan: the first piece of a block and its surroundings are brought, the last one is
    taken.
    """
    rates = []
    for share in m.row.shares:
        if (streamed := share.streamed) is not None:
            problem = on_grid(small_problem(m.case.stencil), m.case.shape)
            plane = problem.grid.n_points // problem.grid.shape[0] * problem.dtype.itemsize
            reach = streamed["steps"] * problem.stencil.radii[0]
            rates.append((2 * streamed["planes"] + 2 * reach) * plane / streamed["start"])
    return rates


def _swept(results: Sequence[Mapping[str, Any]], stencil: str) -> list[tuple[int, float]]:
    """(points, points per second) of the fastest method on each grid."""
    sweeps = itertools.chain.from_iterable(result.get("gpu_sizes", ()) for result in results)
    return [
        (math.prod(point["shape"]), max(row["steady"]["median"] for row in point["rows"]))
        for sweep in sweeps
        if sweep["stencil"] == stencil and sweep["dtype"] == "float64"
        for point in sweep["points"]
        if point["rows"]
    ]
