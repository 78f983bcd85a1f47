"""A result of the benchmark as tables, for the terminal and for the pages of docs/benchmarks/."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tetris_sim.bench.result import (
    BenchCase,
    BenchResult,
    BenchRow,
    MachineLimits,
    ScalingRow,
    SetCase,
    SetRow,
    SetShare,
    Timing,
    When,
)
from tetris_sim.model.problem import arithmetic_of
from tetris_sim.support.wording import listed

# Table, how numbers are written in its cells, and how it is shown.

Cells = Sequence[str]


@dataclass(frozen=True)
class TextTable:
    """Cells with a heading.

    Attributes:
        title: what it shows, a sentence without a full stop.
        header: of the columns.
        rows: the cells.
        words: how many leading columns are text; the others are numbers, set to the right.
    """

    title: str
    header: Cells
    rows: Sequence[Cells]
    words: int

    def as_text(self) -> str:
        """Columns for the terminal."""
        lines = (self.header, *self.rows)
        # Words to the left, numbers to the right.
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        aligned = [
            "  ".join(
                cell.ljust(width) if k < self.words else cell.rjust(width)
                for k, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in lines
        ]
        return "\n".join([f"{self.title}:", *aligned])

    def as_markdown(self) -> str:
        """For a page."""
        rule = ["---" if k < self.words else "---:" for k in range(len(self.header))]
        lines = [f"| {' | '.join(row)} |" for row in (self.header, rule, *self.rows)]
        return "\n".join([f"{self.title}:", "", *lines])


def billions(value: float) -> str:
    """A rate in 10^9, three digits.

    >>> billions(2.345e9), billions(1234e9)
    ('2.35', '1234')
    """
    return f"{value / 1e9:.3g}" if value < 99.5e9 else f"{value / 1e9:.0f}"


def percent(share: float | None) -> str:
    """A share; empty if there is none."""
    return "" if share is None else f"{share:.1%}"


def grid(shape: Sequence[int]) -> str:
    """Points along x, y, z.

    >>> grid((3, 4))
    '4 x 3'
    """
    return " x ".join(str(n) for n in reversed(shape))


def parameters(chosen: Mapping[str, int]) -> str:
    """Names and values."""
    return ", ".join(f"{name} {value}" for name, value in chosen.items())


def spread(timing: Timing) -> str:
    """The slowest and the fastest round.

    >>> spread(Timing(2e9, 1e9, 3e9))
    '1..3'
    """
    return f"{billions(timing.low)}..{billions(timing.high)}"


# What the measured limits allow a sweep, and which share of it a rate is: arithmetic only.


@dataclass(frozen=True)
class Bounds:
    """Point updates per second that cannot be exceeded.

    Attributes:
        fma: if every term of the unfused stencil is one multiply-add.
        memory: if every step reads and writes every point in memory once.
    """

    fma: float
    memory: float

    @property
    def tighter(self) -> Literal["fma", "memory"]:
        """Which of the two binds a sweep that goes through memory at each step."""
        return "fma" if self.fma <= self.memory else "memory"

    @property
    def one_sweep(self) -> float:
        """The smaller of the two."""
        return min(self.fma, self.memory)


def find_bounds(n_terms: int, itemsize: int, *, fma_rate: float, copy_rate: float) -> Bounds:
    """The bounds of a stencil.

    >>> find_bounds(5, 8, fma_rate=100e9, copy_rate=32e9)
    Bounds(fma=20000000000.0, memory=2000000000.0)

    Args:
        n_terms: points of the stencil.
        itemsize: bytes of a point.
        fma_rate: multiply-adds per second.
        copy_rate: bytes per second, read plus written.
    """
    return Bounds(fma=fma_rate / n_terms, memory=copy_rate / (2 * itemsize))


def bounds_of(case: BenchCase, limits: Mapping[When, MachineLimits]) -> Bounds:
    """The bounds of a case; without measured multiply-adds these bind nothing.

    Args:
        case: float16 is computed in float32, and so are its multiply-adds.
        limits: before and after; the better ones count, which are the harder limit.
    """
    dtype = np.dtype(case.dtype)
    return find_bounds(
        case.n_terms,
        dtype.itemsize,
        fma_rate=fma_rate(limits, arithmetic_of(dtype).name),
        copy_rate=copy_rate(limits),
    )


def fma_rate(limits: Mapping[When, MachineLimits], dtype: str) -> float:
    """Multiply-adds per second of all threads, the better of before and after."""
    # The better of before and after: clocks drop under load, and a limit must not be exceeded.
    rates = [measured.fma[dtype].median for measured in limits.values() if dtype in measured.fma]
    return max(rates, default=float("inf"))


def copy_rate(limits: Mapping[When, MachineLimits]) -> float:
    """Bytes per second, read plus written, of the faster kind of copy in memory, the better of
    before and after.
    """
    kinds = [(measured.copy, measured.copy_past_caches) for measured in limits.values()]
    return max(copy.median for pair in kinds for copy in pair if copy is not None)


def share_of_fma(row: BenchRow, case: BenchCase, bounds: Bounds) -> float:
    """A rate as a share of the multiply-add rate: of the same moment if that was measured, else of
    the bound.
    """
    # A yardstick timed in the same rounds sees the same clock as the candidate.
    of_yardstick = row.steady.of_yardstick
    return row.rate / bounds.fma if of_yardstick is None else of_yardstick * case.n_terms


def share_of_sweep(row: BenchRow, bounds: Bounds) -> float | None:
    """A rate as a share of the tighter bound; None for methods that go through memory once for
    several steps.
    """
    return row.rate / bounds.one_sweep if row.steps == 1 else None


_LEFT_OUT = " gets nothing: "  # stands in the sentence of a plan about a worker that it leaves out


def as_text(result: BenchResult, more: Iterable[TextTable] = (), notes: Iterable[str] = ()) -> str:
    """The result for the terminal: who and when, then the tables in columns.

    Args:
        result: what was measured.
        more: tables of what a benchmark of the tests measured besides.
        notes: of the same.
    """
    parts = [describe_machine(result)]
    parts += [table.as_text() for table in (*tables(result), *more)]
    return "\n\n".join([*parts, *_paragraph(result, notes)])


def as_markdown(
    result: BenchResult, more: Iterable[TextTable] = (), notes: Iterable[str] = ()
) -> str:
    """The result for a page: who and when, then Markdown tables; arguments as of `as_text`."""
    parts = [f"{describe_machine(result)}."]
    parts += [table.as_markdown() for table in (*tables(result), *more)]
    return "\n\n".join([*parts, *_paragraph(result, notes)]) + "\n"


def describe_machine(result: BenchResult) -> str:
    """Machine, date, commit and versions in a line."""
    versions = ", ".join(
        f"{name} {result.versions[name]}" for name in ("python", "numpy", "numba", "llvmlite")
    )
    device = f"{result.cpu}, {result.threads} threads"
    if result.gpu is not None:
        device = f"{result.gpu.name} ({result.gpu.architecture}, CUDA {result.gpu.driver})"
    return f"{device}, {result.date}, commit {result.commit}, {versions}"


def tables(result: BenchResult) -> Iterator[TextTable]:
    """All that the result has something for."""
    if result.limits:
        yield limits_table(result.limits)
    if result.gpu_limits:
        yield gpu_limits_table(result.gpu_limits)

    if result.gpu_kernels:
        yield gpu_table(result.gpu_kernels, result.gpu_limits)
        yield gpu_faces_table(result.gpu_kernels)
    if result.kernels:
        yield kernels_table(result.kernels, result.limits)
        yield bounds_table(result.kernels, result.limits)
        precisions = precisions_table(result.kernels)
        if precisions.rows:
            yield precisions
    if result.devices:
        yield devices_table(result.devices)
    if result.scaling:
        yield scaling_table(result.scaling)


def _paragraph(result: BenchResult, notes: Iterable[str]) -> list[str]:
    """Why something is not in the tables: a line each, in one paragraph."""
    lines = [*refused(result.kernels), *refused(result.gpu_kernels), *notes]
    lines += left_out(result.devices)
    return ["\n".join(dict.fromkeys(lines))] if lines else []


def refused(cases: Sequence[BenchCase]) -> list[str]:
    """Say which candidates were not timed and why, once for all stencils of which it is true."""
    stencils: dict[tuple[str, str], list[str]] = {}  # by (what, why)
    for case in cases:
        for name, reason in case.refusals.items():
            stencils.setdefault((name, reason), []).append(case.stencil)
    return [
        f"{name} not for {listed(list(dict.fromkeys(names)), 'and')}: {reason}."
        for (name, reason), names in stencils.items()
    ]


def left_out(cases: Sequence[SetCase]) -> list[str]:
    """Why devices got nothing, in the words of the plans."""
    return [
        f"{case.stencil} on {measured.devices}, {case.threads} threads: {reason}"
        for case in cases
        for measured in case.sets
        for reason in measured.reasons
        if _LEFT_OUT in reason
    ]


def limits_table(limits: Mapping[When, MachineLimits]) -> TextTable:
    """The measured limits of the CPU, before and after."""
    before, after = limits["before"], limits["after"]
    rows = []
    for dtype in before.fma:
        for name, one, other in (
            ("all threads", before.fma, after.fma),
            ("one thread", before.fma_one_thread, after.fma_one_thread),
        ):
            rates = [billions(fma[dtype].median) for fma in (one, other)]
            rows.append((f"multiply-adds, {dtype}, {name}", "1e9/s", *rates))

    copies = [
        ("copy in memory", before.copy, after.copy),
        ("copy in memory, past the caches", before.copy_past_caches, after.copy_past_caches),
        ("load, L1", before.load, after.load),
    ]
    copies += [
        (f"copy in L{one.level}", one.copy, other.copy)
        for one, other in zip(before.caches, after.caches, strict=True)
    ]
    for name, first, second in copies:
        if first is not None and second is not None:
            rows.append((name, "GB/s", billions(first.median), billions(second.median)))
    header = ("limit", "unit", "before", "after")
    return TextTable("Limits of the machine (copies: read plus written)", header, rows, 2)


def gpu_limits_table(limits: Mapping[When, MachineLimits]) -> TextTable:
    """The measured limits of a GPU, before and after."""
    before, after = limits["before"], limits["after"]
    rows = [("copy in memory", "GB/s", billions(before.copy.median), billions(after.copy.median))]
    for dtype in before.fma:
        rates = [billions(found.fma[dtype].median) for found in (before, after)]
        rows.append((f"multiply-adds, {dtype}, CUDA cores", "1e9/s", rates[0], rates[1]))
    if before.tensor is not None and after.tensor is not None:
        rates = [billions(before.tensor.median), billions(after.tensor.median)]
        rows.append(("multiply-adds, float64, tensor cores", "1e9/s", rates[0], rates[1]))
    header = ("limit", "unit", "before", "after")
    return TextTable("Limits of the GPU (copies: read plus written)", header, rows, 2)


def kernels_table(cases: Sequence[BenchCase], limits: Mapping[When, MachineLimits]) -> TextTable:
    """Rates of every candidate on the CPU, over the better loop and as shares of the limits."""
    words = ("stencil", "grid", "dtype", "candidate", "parameters")
    numbers = (
        "GStencil/s",
        "spread",
        "x prange",
        "of FMA limit",
        "of sweep limit",
        "end to end",
        "memory at hand",
    )

    rows = []
    for case in cases:
        # Shares are of the limits measured in the same run, on the same cores.
        bounds, prange = bounds_of(case, limits), better_loop(case)
        for row in case.rows:
            whole = row.end_to_end
            shares = [
                share_of_fma(row, case, bounds),
                share_of_sweep(row, bounds),
                None if whole is None else whole.share_of_steady,
                None if whole is None else whole.share_without_memory,
            ]
            cells = [case.stencil, grid(case.shape), case.dtype, row.name]
            cells += [parameters(row.parameters), billions(row.rate), spread(row.steady)]
            rows.append([*cells, f"{row.rate / prange:.2f}", *map(percent, shares)])

    title = "Steady state, and end to end as a share of it"
    return TextTable(title, (*words, *numbers), rows, len(words))


def better_loop(case: BenchCase) -> float:
    """The rate of the better loop that a user would write by hand."""
    return max(row.rate for row in case.rows if row.name.startswith("prange"))


def bounds_table(cases: Sequence[BenchCase], limits: Mapping[When, MachineLimits]) -> TextTable:
    """Tabulate the bound of each stencil, and which limit is tighter for a sweep through memory."""
    words = {"fma": "multiply-adds", "memory": "memory"}
    rows = []
    for case in cases:
        bounds = bounds_of(case, limits)
        cells = [case.stencil, case.dtype, words[bounds.tighter]]
        rows.append([*cells, billions(bounds.fma), billions(bounds.memory)])
    header = ("stencil", "dtype", "tighter for a sweep through memory", "FMA limit", "memory limit")
    return TextTable("Limits in GStencil/s", header, rows, 3)


def precisions_table(cases: Sequence[BenchCase]) -> TextTable:
    """float64 and float32 beside each other, for every stencil and candidate that has both."""
    rates = {(case.stencil, row.name, case.dtype): row.rate for case in cases for row in case.rows}
    rows = []
    for (stencil, name, dtype), rate in rates.items():
        other = rates.get((stencil, name, "float32"))
        if dtype == "float64" and other is not None:
            rows.append([stencil, name, billions(rate), billions(other), f"{other / rate:.2f}"])
    header = ("stencil", "candidate", "float64", "float32", "ratio")
    return TextTable("GStencil/s by precision", header, rows, 2)


def gpu_table(cases: Sequence[BenchCase], limits: Mapping[When, MachineLimits]) -> TextTable:
    """Rates of every candidate on a GPU, and what they are of the limits that were measured."""
    words = ("stencil", "weights", "grid", "dtype", "candidate", "parameters")
    with_fma = bool(limits["before"].fma)
    numbers = ("GStencil/s", "spread", *(("of FMA limit",) if with_fma else ()), "x one sweep")

    rows = []
    for case in cases:
        bounds = bounds_of(case, limits)
        for row in case.rows:
            cells = [case.stencil, case.weights, grid(case.shape), case.dtype, row.name]
            cells += [parameters(row.parameters), billions(row.rate), spread(row.steady)]
            cells += [percent(row.rate / bounds.fma)] if with_fma else []
            rows.append([*cells, f"{row.rate / bounds.memory:.2f}"])

    title = (
        "Steady state on the whole grid, faces included; x one sweep: multiples of what memory "
        "allows a single step"
    )
    return TextTable(title, (*words, *numbers), rows, len(words))


def gpu_faces_table(cases: Sequence[BenchCase]) -> TextTable:
    """Tabulate the cost of faces for the fastest method."""
    kinds = list(dict.fromkeys(kind for case in cases for kind in case.faces))
    rows = []
    for case in cases:
        rates = [billions(case.faces[kind].median) if kind in case.faces else "" for kind in kinds]
        rows.append([case.stencil, case.weights, case.dtype, case.fastest.name, *rates])
    header = ("stencil", "weights", "dtype", "method", *kinds)
    return TextTable("GStencil/s of the fastest method with other faces", header, rows, 4)


def devices_table(cases: Sequence[SetCase]) -> TextTable:
    """Rates of every set of devices, who got what, how long halos kept them waiting, and how idle
    the idlest was.
    """
    words = ("stencil", "grid", "dtype", "ranks", "threads", "devices", "shares")
    numbers = (
        "GStencil/s",
        "spread",
        "predicted",
        "of the sum alone",
        "steps per block",
        "exchange",
        "idle",
    )

    rows = []
    for case in cases:
        threads = "all" if case.threads is None else str(case.threads)
        for measured in case.sets:
            idle = max((row.measured_idle for row in measured.rows), default=None)
            cells = [case.stencil, grid(case.shape), case.dtype, str(case.ranks), threads]
            cells += [_devices(measured), _shares(measured.shares), billions(measured.rate)]
            cells += [spread(measured.steady), billions(measured.predicted)]
            cells += [percent(measured.of_sum), str(measured.time_block)]
            rows.append([*cells, percent(measured.exchange_share), percent(idle)])

    title = "Whole grids on sets of devices, steady state, halos included"
    return TextTable(title, (*words, *numbers), rows, len(words))


def scaling_table(rows: Sequence[ScalingRow]) -> TextTable:
    """Rates of whole runs on more and more devices, beside one device and beside the plan, with the
    seconds around computing; bits are compared with those of one device on the same grid.
    """
    header = (
        *("problem", "scaling", "grid", "devices", "ranks", "method"),
        *("GStencil/s", "spread", "times one", "of ideal", "predicted", "off by", "exchange"),
        *("to first step s", "files s", "same bits"),
    )
    # Reference of a problem: one device, the whole grid.
    alone = {row.problem: row for row in rows if row.devices == 1 and row.mode == "strong"}
    # Reversed, so that the first row of a grid, that of fewest devices, stays in the dictionary.
    states = {(row.problem, row.shape): row.digest for row in reversed(rows) if row.digest}

    cells = []
    for row in rows:
        one = alone.get(row.problem)
        times = None if one is None else row.rate / one.rate
        off = None if row.predicted is None else row.predicted / row.rate - 1
        same = {True: "yes", False: "no"}[row.digest == states.get((row.problem, row.shape), "")]
        words = [row.problem, row.mode, grid(row.shape), str(row.devices), str(row.ranks)]
        if row.used != row.devices:
            words[3] = f"{row.devices}, {row.used} used"
        numbers = [billions(row.rate), spread(row.steady), "" if times is None else f"{times:.2f}"]
        numbers += [percent(None if times is None else times / row.devices)]
        numbers += ["" if row.predicted is None else billions(row.predicted)]
        numbers += ["" if off is None else f"{off:+.1%}", percent(row.exchange_share)]
        numbers += [f"{row.first_step_s:.1f}", f"{row.files_s:.1f}", same if row.digest else ""]
        cells.append([*words, ", ".join(row.methods), *numbers])
    return TextTable("Whole runs on more and more devices", header, cells, 6)


def _devices(measured: SetRow) -> str:
    by_speed = ", each its share by speed alone" if measured.forced else ""
    return f"{measured.devices}{by_speed}"


def _shares(shares: Sequence[SetShare]) -> str:
    total = sum(share.points for share in shares)
    several = len({share.rank for share in shares}) > 1
    parts = []
    for share in shares:
        name = f"rank {share.rank} {share.worker}" if several else share.worker
        streamed = " (streamed)" if share.streamed else ""
        parts.append(f"{name}{streamed} {share.points / total:.1%}")
    return ", ".join(parts)
