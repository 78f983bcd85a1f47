"""The performance report: how fast, and where the time went, as text and as JSON."""

from __future__ import annotations

import functools
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from tetris_sim.errors import CheckpointError, ExitCode
from tetris_sim.model.problem import Problem
from tetris_sim.outputs.audit import AUDITED
from tetris_sim.scheduler.comm.communicator import Alone, Communicator
from tetris_sim.scheduler.facts.shares import Plan, names_of
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.scheduler.workers.exchange import Traffic
from tetris_sim.scheduler.workers.worker import WorkerRow, worker_rows
from tetris_sim.support.files import read_given
from tetris_sim.support.wording import (
    PhaseClock,
    count_threads,
    first_line,
    format_duration,
    format_time,
    printable,
)
from tetris_sim.version import __version__

_WORTH_SAYING = 30.0  # seconds of writing that are worth a hint
_MOST_BYTES = 1 << 26
_SAID = 300  # characters of what is wrong with a report of somebody else
_LISTED = 8  # workers that are named one by one
_COUNTABLE = 2**63
Whole = Annotated[int, Field(gt=-_COUNTABLE, lt=_COUNTABLE)]
PACKAGES = ("numpy", "numba", "llvmlite", "h5py", "scipy", "pydantic")


@dataclass(frozen=True)
class Report:
    """Work of a run and the time that each part took.

    Attributes:
        exit_code: 0, or the code of what ended it early.
        ended: the same as a sentence.
        first_step: the step it began at.
        step: the step it ended at.
        steps: the last step of the problem.
        time_s: simulated time at the end [s].
        points: interior points times fields.
        precision: of the state, as of `compute.precision`.
        wall_s: wall time of this run [s].
        phases_s: wall time per phase [s].
        points_per_second: point updates per second of computing, exchanges included.
        points_per_second_overall: the same over the whole wall time.
        effective_bytes_per_second: bytes moved if every step read and wrote every point once.
        methods: the method of each worker, by its name.
        plan: the reasons behind the plan.
        machine: host, cpu, threads, and the device that computed.
        versions: of the packages that matter.
        outputs: folder of the results.
        notes: facts that a reader of the results must know of how they were computed.
        ranks: of each rank its host, cpu, cores, seconds of computing and exchanging, messages and
            bytes sent; empty for one alone.
        workers: of each worker of several kinds its share, speed, and predicted and measured idle
            time.
        scheme: how the state got on.
        heat: flows of heat and the balance since the first record, by column of the statistics;
            empty if these were not written at the last step.
    """

    exit_code: Whole
    ended: str
    first_step: Whole
    step: Whole
    steps: Whole
    time_s: float
    points: Whole
    precision: str
    wall_s: float
    phases_s: dict[str, float]
    points_per_second: float
    points_per_second_overall: float
    effective_bytes_per_second: float
    methods: dict[str, str]
    plan: tuple[str, ...]
    machine: dict[str, Any]
    versions: dict[str, str]
    outputs: str
    notes: tuple[str, ...] = ()
    ranks: tuple[dict[str, Any], ...] = ()
    workers: tuple[WorkerRow, ...] = ()
    scheme: str = "explicit"
    heat: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Everything as plain data."""
        return asdict(self)

    @property
    def headline(self) -> str:
        """How it ended, and where."""
        if self.scheme == "steady":
            return f"{self.ended}: steady state of {self.points} points, {self.precision}"
        return (
            f"{self.ended}: steps {self.first_step} to {self.step} of {self.steps}, t = "
            f"{format_time(self.time_s)}"
        )

    def as_text(self) -> str:
        """A page for people."""
        # Rates count the steps of this run alone; those before a restart are in its own report.
        done = self.step - self.first_step
        rates = [
            f"  {self.points_per_second / 1e9:.3g} GStencil/s while computing, "
            f"{self.points_per_second_overall / 1e9:.3g} over all "
            f"({done} steps of {self.points} points, {self.precision})",
            (
                f"  {self.effective_bytes_per_second / 1e9:.3g} GB/s effective (one read and one "
                "write per point and step)"
            ),
        ]
        facts = self.as_json()
        if not sweeps(facts):
            rates = [f"  {it}" for it in [pace_of(facts)] if it]
        lines = [
            self.headline,
            *rates,
            f"  {_listed(self.methods)}; {self.machine['device']}",
            *(f"  {note}" for note in self.notes),
            *(f"  {row}" for row in self.workers),
            *self._lines_of_ranks(),
            *(f"  {line}" for line in lines_of_heat(self.heat)),
            f"  wall time {format_duration(self.wall_s)}:",
        ]

        # What no phase claims: imports, compilation outside of planning, waiting for other
        # programs.
        rest = self.wall_s - sum(self.phases_s.values())
        for name, seconds in [*self.phases_s.items(), ("rest", rest)]:
            if seconds > 0:
                lines.append(f"    {name:<10} {seconds:9.3f} s  {seconds / self.wall_s:6.1%}")

        # Advice only where it would save a noticeable time.
        written = self.phases_s["output"] + self.phases_s["checkpoint"]
        if written > self.phases_s["compute"] and written > _WORTH_SAYING and done:
            lines.append(
                "  Writing took longer than computing: widen output.*.every or checkpoint.every."
            )
        return "\n".join(lines)

    def _lines_of_ranks(self) -> list[str]:
        if not self.ranks:
            return []
        # A wide range between ranks means that the load is not balanced.
        computing, exchanging = (
            [rank[key] for rank in self.ranks] for key in ("compute_s", "exchange_s")
        )
        messages, n_bytes = (sum(rank[key] for rank in self.ranks) for key in ("messages", "bytes"))
        return [
            f"  {len(self.ranks)} ranks: computing {min(computing):.3g} to {max(computing):.3g} s, "
            f"exchanging {min(exchanging):.3g} to {max(exchanging):.3g} s, {messages} messages, "
            f"{n_bytes / 1e6:.4g} MB"
        ]


def sweeps(report: Mapping[str, Any]) -> bool:
    """Whether every step passed over all points, so that their number measures work.

    Args:
        report: as of `as_json`.
    """
    # Solvers and transforms do another amount of work per point, so points per second would compare
    # nothing.
    transforms = any(it.endswith(".spectral") for it in report.get("methods", {}).values())
    return report.get("scheme", "explicit") == "explicit" and not transforms


def pace_of(report: Mapping[str, Any]) -> str:
    """How fast it went: a rate where every step is a sweep, else steps in what time; "" for none.

    >>> pace_of({"scheme": "implicit", "first_step": 0, "step": 40, "phases_s": {"compute": 2.0}})
    '40 steps in 2 s of computing'

    Args:
        report: as of `as_json`.
    """
    if sweeps(report):
        return f"{report['points_per_second'] / 1e9:.3g} GStencil/s"
    if report.get("scheme") == "steady":
        return ""
    phases = report["phases_s"]
    computing = phases["compute"] + phases.get("exchange", 0.0)
    done = report["step"] - report["first_step"]
    return f"{done} steps in {format_duration(computing)} of computing"


def lines_of_heat(heat: Mapping[str, float]) -> list[str]:
    """The balance and the flows of heat, for people.

    >>> lines_of_heat({"heat flow x- [W]": 2.5, "heat stored [J]": 1.0, "heat residual [J]": 1e-15})
    ['heat stored 1 J, residual 1e-15 J', 'heat flow x- 2.5 W']

    Args:
        heat: by column of the statistics, "heat stored [J]".
    """
    balance: list[str] = []
    flows: list[str] = []
    parts: list[str] = []

    for column, value in heat.items():
        # Columns carry their unit in brackets; powers begin with W, energies with J.
        name, _, unit = column.rpartition(" [")
        # What was asked of parts of the body has their names.
        if not column.startswith(AUDITED):
            parts.append(f"{name} {value:.6g} {unit.rstrip(']')}")
            continue
        is_flow = unit.startswith("W")
        words = f"{name.removeprefix('heat flow ' if is_flow else 'heat ')} {value:.6g}"
        (flows if is_flow else balance).append(f"{words} {unit.rstrip(']')}")

    if len(flows) > _LISTED:
        flows[_LISTED:] = [f"{len(flows) - _LISTED} more in the statistics"]
    return [
        f"{kind} {', '.join(words)}"
        for kind, words in (("heat", balance), ("heat flow", flows), ("of parts:", parts))
        if words
    ]


def read_report(path: Path) -> Report:
    """The report in a file of JSON, which somebody else may have written.

    Raises:
        CheckpointError: it is missing, or holds no report.
    """
    try:
        return _reader().validate_json(read_given(path, _MOST_BYTES), strict=True)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        where = "".join(f"{part}: " for part in wrong["loc"])
        said = printable(f"{where}{wrong['msg']}"[:_SAID])
    except OSError as error:
        said = first_line(error)
    msg = f"{path} cannot be read as the report of a run: {said}"
    raise CheckpointError(msg)


@functools.cache
def _reader() -> TypeAdapter[Report]:
    return TypeAdapter(Report)


def make_report(
    problem: Problem,
    plan: Plan,
    machine: Machine,
    clock: PhaseClock,
    *,
    first_step: int,
    step: int,
    ended: str,
    exit_code: ExitCode,
    outputs: str,
    traffic: Traffic | None = None,
    ranks: Communicator | None = None,
    busy_s: Mapping[str, float] | None = None,
    events: Sequence[str] = (),
    heat: Mapping[str, float] | None = None,
) -> Report:
    """Collect the figures at the end of a run.

    Args:
        problem: what was advanced.
        plan: how.
        machine: on what.
        clock: the time of each phase.
        first_step: where this run began.
        step: where it ended.
        ended: why it ended, as a sentence without a full stop.
        exit_code: the exit code that goes with it.
        outputs: folder of the results.
        traffic: what this rank sent to others.
        ranks: all of them call this; one alone if not given.
        busy_s: time that each worker computed, where they measure that [s].
        events: at what times what was crossed or switched.
        heat: flows of heat and the balance at the end, by column of the statistics.
    """
    # A point of two fields counts twice, as in the literature on systems.
    points = problem.grid.n_points * problem.n_fields
    updates = points * (step - first_step)
    computing = clock.seconds["compute"] + clock.seconds["exchange"]
    wall = clock.elapsed
    rate = updates / computing if computing > 0 else 0.0
    # Collective: every rank has to come here, also if it has nothing to say.
    rows = (ranks or Alone()).collect(_describe_rank(machine, clock, traffic or Traffic()))

    return Report(
        exit_code=int(exit_code),
        ended=ended,
        first_step=first_step,
        step=step,
        steps=problem.steps,
        time_s=problem.time(step),
        points=points,
        precision=problem.precision,
        wall_s=wall,
        phases_s=dict(clock.seconds),
        points_per_second=rate,
        points_per_second_overall=updates / wall,
        effective_bytes_per_second=rate * 2 * problem.dtype.itemsize,
        methods={
            name: share.method.name for name, share in zip(names_of(plan), plan.shares, strict=True)
        },
        plan=plan.reasons,
        machine=_describe_machine(machine, plan),
        versions=package_versions(),
        outputs=outputs,
        notes=(*plan.notes, *events),
        ranks=tuple(rows) if len(rows) > 1 else (),
        workers=worker_rows(plan, busy_s or {}, computing),
        scheme=plan.scheme,
        # In a steady state nothing was stored, and nothing adds up over time.
        heat={
            name: value
            for name, value in (heat or {}).items()
            if plan.scheme != "steady" or name.rpartition(" [")[2].startswith("W")
        },
    )


def _describe_rank(machine: Machine, clock: PhaseClock, traffic: Traffic) -> dict[str, Any]:
    return {
        "host": machine.host,
        "cpu": machine.cpu,
        "cores": list(machine.cores),
        "compute_s": clock.seconds["compute"],
        "exchange_s": clock.seconds["exchange"],
        "messages": traffic.messages,
        "bytes": traffic.bytes,
    }


def _describe_machine(machine: Machine, plan: Plan) -> dict[str, Any]:
    threads = sum(share.threads for share in plan.shares)
    gpus = ", ".join(share.product for share in plan.shares if share.product)
    device = gpus or f"{count_threads(threads)} of {machine.cpu}"
    return {"host": machine.host, "cpu": machine.cpu, "threads": threads, "device": device}


def _listed(methods: Mapping[str, str]) -> str:
    """Worker and method of a few workers, or how many have each method."""
    if len(methods) <= _LISTED:
        return ", ".join(f"{worker}: {method}" for worker, method in methods.items())
    counts = Counter(methods.values())
    return ", ".join(f"{count} workers: {method}" for method, count in counts.items())


def package_versions() -> dict[str, str]:
    """Versions of Python, of this package and of those that decide about numbers and files."""
    ours = {"tetris_sim": __version__, "python": platform.python_version()}
    return ours | {package: _version_of(package) for package in PACKAGES}


@functools.cache  # looking into the files of a package takes milliseconds; every checkpoint asks
def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
