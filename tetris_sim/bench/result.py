"""A measured result: who measured what and when, every rate, and the limits beside them.

One form for all kinds of `bench`. It holds what was measured and nothing that follows from it
(`bounds.py`), and is written to JSON and read from it under the names of its fields, so tables can
be made again from a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from tetris_sim.model.method import STEPS_PER_BLOCK
from tetris_sim.scheduler.machine.machine import Gpu
from tetris_sim.scheduler.workers.worker import WorkerRow

When = Literal["before", "after"]


@dataclass(frozen=True)
class Timing:
    """Rates over the rounds, in units per second.

    Attributes:
        median: of the rounds.
        low: the slowest round.
        high: the fastest round.
        of_yardstick: median of the rate over that of a yardstick timed just before, in units of its
            work; None if there was none.
    """

    median: float
    low: float
    high: float
    of_yardstick: float | None = None


@dataclass(frozen=True)
class BenchTrial:
    """A choice of parameters that was timed to find the fastest one.

    Attributes:
        parameters: of the method.
        rate: points per second.
    """

    parameters: Mapping[str, int]
    rate: float


@dataclass(frozen=True)
class WholeRun:
    """A run from nothing to a result.

    Attributes:
        steps: of the run.
        seconds: of the run, a median.
        rate: points per second.
        steady_rate: points per second in steady state, timed right after each run.
        runs: how many there were.
        memory_seconds: of them, in which the machine handed over memory; None if not measured.
    """

    steps: int
    seconds: float
    rate: float
    steady_rate: float
    runs: int
    memory_seconds: float | None = None

    @property
    def share_of_steady(self) -> float:
        """Of the rate in steady state."""
        return self.rate / self.steady_rate

    @property
    def share_without_memory(self) -> float | None:
        """The same if the time in which memory was handed over does not count."""
        if self.memory_seconds is None:
            return None
        return self.share_of_steady * self.seconds / (self.seconds - self.memory_seconds)


@dataclass(frozen=True)
class BenchRow:
    """One way to advance a grid, timed.

    Attributes:
        name: the method, a loop written by hand or another library, or a label of either.
        steady: rate in steady state, points per second.
        parameters: of the method, the fastest that were tried.
        tried: all that were tried.
        end_to_end: of a whole run, where one was made.
    """

    name: str
    steady: Timing
    parameters: Mapping[str, int] = field(default_factory=dict)
    tried: tuple[BenchTrial, ...] = ()
    end_to_end: WholeRun | None = None

    @property
    def rate(self) -> float:
        """Points per second, the median."""
        return self.steady.median

    @property
    def steps(self) -> int:
        """That it makes at a time."""
        return self.parameters.get(STEPS_PER_BLOCK, 1)


@dataclass(frozen=True)
class BenchCase:
    """One stencil on one grid, advanced in all ways there are.

    Attributes:
        stencil: its name in the catalogue.
        dtype: of the state.
        shape: points, array order.
        n_terms: points of the stencil.
        rows: of what was timed.
        refusals: why a method is not among them, by its name.
        weights: which kind.
        faces: rates of the fastest method by kind of face, where they were timed.
    """

    stencil: str
    dtype: str
    shape: tuple[int, ...]
    n_terms: int
    rows: tuple[BenchRow, ...]
    refusals: Mapping[str, str] = field(default_factory=dict)
    weights: str = "random"
    faces: Mapping[str, Timing] = field(default_factory=dict)

    @property
    def fastest(self) -> BenchRow:
        """The row with the highest rate."""
        return max(self.rows, key=lambda row: row.rate)


@dataclass(frozen=True)
class CacheLimit:
    """The limit that a level of cache sets.

    Attributes:
        level: 1, 2 or 3.
        n_bytes: of one of them.
        sharing: threads that share one.
        capacity: bytes of all that the threads have.
        copy: bytes per second of all threads, read plus written.
    """

    level: int
    n_bytes: int
    sharing: int
    capacity: int
    copy: Timing


@dataclass(frozen=True)
class MachineLimits:
    """The limits of a machine or a GPU, bytes and multiply-adds per second.

    Attributes:
        copy: in memory, read plus written.
        copy_past_caches: the same with stores past the caches; CPU.
        load: into registers from the first cache; CPU.
        fma: multiply-adds of all threads by dtype.
        fma_one_thread: of one thread; CPU.
        tensor: multiply-adds of FP64 tensor cores; GPU.
        caches: what each level can do; CPU.
        threads: that worked; CPU.
    """

    copy: Timing
    copy_past_caches: Timing | None = None
    load: Timing | None = None
    fma: Mapping[str, Timing] = field(default_factory=dict)
    fma_one_thread: Mapping[str, Timing] = field(default_factory=dict)
    tensor: Timing | None = None
    caches: tuple[CacheLimit, ...] = ()
    threads: int | None = None


@dataclass(frozen=True)
class SetShare:
    """The share of a worker in a set of devices.

    Attributes:
        worker: its name.
        points: of its slab.
        rank: where it works.
        device: what it is.
        method: by which it computes.
        parameters: of the method.
        streamed: how its part goes through the device, if it lies in host memory.
    """

    worker: str
    points: int
    rank: int = 0
    device: str = ""
    method: str = ""
    parameters: Mapping[str, int] = field(default_factory=dict)
    streamed: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class SetRow:
    """A set of devices that advanced a whole grid.

    Attributes:
        devices: joined by +, as they were asked for.
        steady: rate in steady state with the exchange of halos, points per second.
        shares: who got how much.
        forced: whether every device got planes by its speed alone.
        predicted: rate by the plan, points per second.
        time_block: steps between two exchanges.
        exchange_share: of the time, that the exchange took.
        of_sum: rate over the sum of what the parts do alone; None if they were not all measured.
        traffic: messages and bytes of the exchange.
        rows: what each worker was to do and did.
        reasons: of the plan, a sentence each.
    """

    devices: str
    steady: Timing
    shares: tuple[SetShare, ...]
    forced: bool
    predicted: float
    time_block: int
    exchange_share: float
    of_sum: float | None = None
    traffic: Mapping[str, int] = field(default_factory=dict)
    rows: tuple[WorkerRow, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Points per second, the median."""
        return self.steady.median


@dataclass(frozen=True)
class SetCase:
    """One stencil on one grid, advanced by several sets of devices.

    Attributes:
        stencil: its name in the catalogue.
        dtype: of the state.
        shape: points, array order.
        sets: that were timed.
        threads: CPU threads of each rank; None for all.
        ranks: how many there were.
    """

    stencil: str
    dtype: str
    shape: tuple[int, ...]
    sets: tuple[SetRow, ...]
    threads: int | None = None
    ranks: int = 1


@dataclass(frozen=True)
class ScalingRow:
    """A problem that some devices computed as whole runs.

    Attributes:
        problem: its name.
        mode: strong, weak, or "continued from 1" for a run that went on from a checkpoint in its
            middle that one device wrote.
        devices: that were asked for.
        used: of them, by the plan.
        ranks: processes.
        shape: points, array order.
        steps: of a run; 0 for a steady state.
        steady: point updates per second of computing, exchanges included; points of a steady state
            per second of solving.
        predicted: the same by the plan; None where the plan has no prediction of its own.
        exchange_share: of the time of computing that exchanges exposed.
        first_step_s: from the start of the process to its first step, a median [s].
        files_s: of a run, that waited for its files, a median [s].
        digest: of the bits of the last state; "differs" if runs differed, "" if none was kept.
        methods: that computed.
    """

    problem: str
    mode: str
    devices: int
    used: int
    ranks: int
    shape: tuple[int, ...]
    steps: int
    steady: Timing
    predicted: float | None
    exchange_share: float
    first_step_s: float
    files_s: float
    digest: str
    methods: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Points per second, the median."""
        return self.steady.median


@dataclass(frozen=True)
class BenchResult:
    """All that a benchmark measured, and what it must carry to be believed.

    Attributes:
        host: name of the computer.
        cpu: its processor.
        threads: that this process may use.
        versions: of Python and what it imports.
        commit: that was measured.
        date: of the measurement.
        rounds: timings of each candidate.
        seconds: length of one timing.
        gpu: that was measured.
        gpu_memory: most memory that a state was allowed on each GPU.
        limits: of the CPU, before and after.
        gpu_limits: of the GPU, before and after.
        kernels: on the CPU.
        gpu_kernels: on the GPU.
        devices: on sets of devices.
        scaling: of whole runs on more and more devices.
    """

    host: str
    cpu: str
    threads: int
    versions: Mapping[str, str]
    commit: str
    date: str
    rounds: int
    seconds: float
    gpu: Gpu | None = None
    gpu_memory: str | None = None
    limits: Mapping[When, MachineLimits] = field(default_factory=dict)
    gpu_limits: Mapping[When, MachineLimits] = field(default_factory=dict)
    kernels: tuple[BenchCase, ...] = ()
    gpu_kernels: tuple[BenchCase, ...] = ()
    devices: tuple[SetCase, ...] = ()
    scaling: tuple[ScalingRow, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain data, without what was not measured."""
        return {name: value for name, value in asdict(self).items() if value not in (None, (), {})}


def read_result(data: Mapping[str, Any]) -> BenchResult:
    """The result that `as_json` gave; what else is there is left out.

    Raises:
        pydantic.ValidationError: something is missing or of another type.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(BenchResult).validate_python(data)
