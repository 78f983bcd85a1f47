"""What results of `bench devices` say about what was wanted of grids on many devices: a line for
each claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tetris_sim.bench.result import BenchResult, SetCase, SetRow
from tetris_sim.bench.tables import TextTable, grid

_OF_SUM = 0.97  # CPU and GPU together, of the sum of both
_OF_BEST = 0.97  # what the plan chose, of the best of all that was measured
_OF_RESIDENT = 0.5  # streamed, of the rate in GPU memory
_SPEEDUP = {2: 1.9, 4: 3.7, 8: 7.2}  # by GPUs
_EXCHANGE = 0.03  # most of the time in which halos keep everybody waiting


@dataclass(frozen=True)
class Measured:
    """One set of devices on one grid.

    Attributes:
        case: stencil, grid, dtype, threads, ranks.
        row: what was measured.
    """

    case: SetCase
    row: SetRow

    @property
    def rate(self) -> float:
        """Points per second, the median."""
        return self.row.rate

    @property
    def points(self) -> int:
        """Of the grid."""
        return sum(share.points for share in self.row.shares)

    @property
    def gpus(self) -> int:
        """That took part."""
        return sum(share.worker.startswith("gpu") for share in self.row.shares)

    @property
    def all_gpus(self) -> bool:
        """Whether nothing else took part."""
        return self.gpus == len(self.row.shares)

    @property
    def streamed(self) -> bool:
        """Whether some of the grid lay in host memory and went through a GPU."""
        return any(share.streamed for share in self.row.shares)

    @property
    def name(self) -> str:
        """Stencil and grid."""
        return f"{self.case.stencil}, {grid(self.case.shape)}"

    @property
    def where(self) -> str:
        """Stencil, grid, GPUs and ranks."""
        ranks = "one process" if self.case.ranks == 1 else f"{self.case.ranks} ranks"
        return f"{self.name}, {self.gpus} GPUs, {ranks}"


def measurements(results: Iterable[BenchResult]) -> list[Measured]:
    """Every set of devices of every result."""
    return [
        Measured(case, row) for result in results for case in result.devices for row in case.sets
    ]


def one_gpu(every: Sequence[Measured], like: Measured) -> Measured | None:
    """The fastest single GPU on the same grid, or else on a GPU's part of it; None if none was
    measured.
    """
    alone = [
        m for m in every if m.gpus == 1 and m.all_gpus and not m.streamed and m.case.ranks == 1
    ]
    alone = [
        m for m in alone if (m.case.stencil, m.case.dtype) == (like.case.stencil, like.case.dtype)
    ]
    for points in (like.points, like.points // max(1, like.gpus)):
        if found := [m for m in alone if m.points == points]:
            return max(found, key=lambda m: m.rate)
    return None


def goals_table(results: Iterable[BenchResult]) -> TextTable:
    """What was wanted, what was measured, and whether that is enough."""
    every = measurements(results)
    rows = [
        *_of_sum(every),
        *_of_best(every),
        *_streamed(every),
        *_speedups(every),
        *_exchanges(every),
    ]
    rows += _predictions(every)
    return TextTable(
        "What was wanted, and what was measured",
        ("claim", "wanted", "measured", "reached"),
        rows,
        1,
    )


def _of_sum(every: Sequence[Measured]) -> Iterator[list[str]]:
    for name, group in _by_name([m for m in every if m.row.devices == "cpu+gpu" and m.row.of_sum]):
        planned = [m.row.of_sum for m in group if m.row.of_sum and not m.row.forced]
        forced = [m.row.of_sum for m in group if m.row.of_sum and m.row.forced]
        if planned:
            yield [
                f"{name}: CPU and GPU, of the sum of both",
                f"{_OF_SUM}",
                *_judged(planned, _OF_SUM),
            ]
        if forced:
            yield [f"{name}: the same with shares by speed alone", "", _range(forced), ""]


def _of_best(every: Sequence[Measured]) -> Iterator[list[str]]:
    for name, group in _by_name(
        [m for m in every if m.row.devices == "cpu+gpu" and not m.row.forced]
    ):
        best = [m.rate / max(row.rate for row in m.case.sets) for m in group]
        yield [
            f"{name}: what the plan chose, of the best that was measured",
            f"{_OF_BEST}",
            *_judged(best, _OF_BEST),
        ]


def _streamed(every: Sequence[Measured]) -> Iterator[list[str]]:
    for m in every:
        resident = one_gpu(every, m) if m.streamed else None
        if resident is not None:
            found = _judged([m.rate / resident.rate], _OF_RESIDENT)
            yield [
                f"{m.name}: streamed from host memory, of the rate in GPU memory",
                f"{_OF_RESIDENT}",
                *found,
            ]


def _speedups(every: Sequence[Measured]) -> Iterator[list[str]]:
    for m in every:
        alone = one_gpu(every, m) if m.gpus > 1 and m.all_gpus else None
        if alone is not None and m.gpus in _SPEEDUP:
            wanted = _SPEEDUP[m.gpus]
            yield [
                f"{m.where}: times one GPU",
                f"{wanted}",
                *_judged([m.rate / alone.rate], wanted),
            ]


def _exchanges(every: Sequence[Measured]) -> Iterator[list[str]]:
    for m in every:
        if m.gpus > 1 and m.all_gpus:
            share = m.row.exchange_share
            reached = "yes" if share < _EXCHANGE else "no"
            yield [
                f"{m.where}: time in the exchange",
                f"less than {_EXCHANGE:.0%}",
                f"{share:.1%}",
                reached,
            ]
            if m.row.rows:
                idle = max(row.measured_idle for row in m.row.rows)
                yield [f"{m.where}: the idlest GPU, of the whole time", "", f"{idle:.1%}", ""]


def _predictions(every: Sequence[Measured]) -> Iterator[list[str]]:
    free = [m for m in every if not m.row.forced]
    alone, together = (
        [m for m in free if (len(m.row.shares) > 1) is several] for several in (False, True)
    )
    gpu, cpu = ([m for m in alone if bool(m.gpus) is is_gpu] for is_gpu in (True, False))
    for who, found in (("one GPU", gpu), ("CPU threads", cpu), ("several devices", together)):
        if found:
            ratios = _range([m.row.predicted / m.rate for m in found])
            yield [f"{who}: predicted rate over the measured one", "", ratios, ""]


def _judged(values: Sequence[float], least: float) -> list[str]:
    return [_range(values), "yes" if min(values) >= least else "no"]


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    return low if low == high else f"{low} to {high}"


def _by_name(found: Sequence[Measured]) -> Iterator[tuple[str, list[Measured]]]:
    for name in dict.fromkeys(m.name for m in found):
        yield name, [m for m in found if m.name == name]
