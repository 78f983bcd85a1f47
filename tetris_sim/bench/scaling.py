"""`bench scaling`: the same problem on 1, 2, 4, ... devices of one host, as whole runs.

Strong scaling divides one grid between more devices; weak scaling gives each device as many points
as one has alone. Every run is a process of its own: `plan --json` says first what the scheduler
predicts, then `run` computes and writes two checkpoints, so rates, start, files and the bits of the
last state are those that a user gets. A run that several devices continue from the checkpoint that
one device wrote in the middle has to end with the same bits as well.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from tetris_sim.bench.result import BenchResult, ScalingRow, Timing
from tetris_sim.bench.timing import provenance
from tetris_sim.errors import UnsupportedError

_LOG = logging.getLogger("tetris_sim")

Config = dict[str, Any]
_START = ("plan", "prepare", "initial")  # phases before the first step
_FILES = ("output", "checkpoint")
_PERIODIC = {"*": {"type": "periodic"}}
_SLICE_BYTES = 1 << 28  # of a state that is read at a time for its digest
_LEAST_STEPS = 8
_LONG_RUN = 1 << 24  # steps


def _stencil(name: str) -> Callable[[Sequence[int]], Config]:
    def config(shape: Sequence[int]) -> Config:
        return {
            "grid": {"shape": list(shape), "spacing": ["1 m"] * len(shape)},
            "model": {"type": "stencil", "stencil": name},
            "initial": {"type": "random", "low": 0, "high": 1},
            "boundaries": _PERIODIC,
        }

    return config


def _body(shape: Sequence[int], materials: Config) -> Config:
    """Return a body of eight layers along x: weak scaling, which adds points along the last axis,
    makes them longer and adds none.
    """
    names = list(materials)

    boxes = [
        {"material": name, "box": {"x": [f"{k / 8} m", f"{(k + 1) / 8} m"]}}
        for k, name in ((k, names[k % len(names)]) for k in range(1, 8))
    ]

    # Cells are cubes, whatever shape; the body is 1 m wide along x.
    widths = [1 / shape[0]] * len(shape)
    return {
        "grid": {"shape": list(shape), "spacing": [f"{width} m" for width in widths]},
        "model": {
            "type": "heat",
            "materials": materials,
            "regions": [{"material": names[0]}, *boxes],
        },
        "initial": {"type": "expression", "expression": "300 + 100*sin(2*pi*x/Lx)*cos(2*pi*y/Ly)"},
        "boundaries": {"*": {"type": "neumann"}},
    }


def _palette(shape: Sequence[int]) -> Config:
    names = [f"m{k}" for k in range(8)]
    return _body(
        shape,
        {
            name: {"conductivity": 1.0 + 3 * k, "density": 1000, "specific_heat": 1000}
            for k, name in enumerate(names)
        },
    )


def _melting(shape: Sequence[int]) -> Config:
    wax = {"conductivity": 2, "density": 1000, "specific_heat": 1000}
    return _body(shape, {"wax": {**wax, "latent_heat": "200 kJ/kg", "solidus": "330 degC"}})


def _gray_scott(shape: Sequence[int]) -> Config:
    spots = "where(sin(0.1*x)*sin(0.1*y) > 0.9, {}, {})"

    return {
        "grid": {"shape": list(shape), "spacing": [1] * len(shape)},
        "model": {
            "type": "pde",
            "constants": {"F": 0.0545, "k": 0.062},
            "fields": {
                "u": {
                    "equation": "0.16*laplace(u) - u*v**2 + F*(1 - u)",
                    "initial": {"type": "expression", "expression": spots.format(0.5, 1)},
                },
                "v": {
                    "equation": "0.08*laplace(v) + u*v**2 - (F + k)*v",
                    "initial": {"type": "expression", "expression": spots.format(0.25, 0)},
                },
            },
        },
        "boundaries": _PERIODIC,
        "time": {"dt": 1},
    }


@dataclass(frozen=True)
class ScalingProblem:
    """A problem of any size.

    Attributes:
        shape: points along x, y, z as one device has them.
        config: the configuration of a grid of a shape.
        steady: whether one steady state is solved instead of steps.
    """

    shape: tuple[int, ...]
    config: Callable[[Sequence[int]], Config]
    steady: bool = False

    def sized(self, scale: float) -> tuple[int, ...]:
        """Return the shape with `scale` times the points, in whole multiples of 8 along each axis.

        >>> ScalingProblem((1024, 512), dict).sized(0.25)
        (512, 256)
        """
        each = scale ** (1 / len(self.shape))
        return tuple(max(8, 8 * round(n * each / 8)) for n in self.shape)


def _steady(shape: Sequence[int]) -> Config:
    config = _palette(shape)
    warm, cold = ({"type": "dirichlet", "value": f"{value} degC"} for value in (100, 20))
    return {**config, "boundaries": {"x-": warm, "x+": cold, "*": {"type": "neumann"}}}


PROBLEMS: Mapping[str, ScalingProblem] = {
    "heat-2d": ScalingProblem((65536, 32768), _stencil("heat-2d")),
    "heat-3d": ScalingProblem((1024, 1024, 2048), _stencil("heat-3d")),
    "palette": ScalingProblem((1024, 1024, 1024), _palette),
    "melting": ScalingProblem((768, 768, 768), _melting),
    "gray-scott": ScalingProblem((16384, 16384), _gray_scott),
    "steady": ScalingProblem((640, 640, 640), _steady, steady=True),
}
"""What is measured, by name."""


def bench_scaling(
    names: Sequence[str],
    *,
    most: int,
    scale: float = 1.0,
    rounds: int = 3,
    seconds: float = 5.0,
    ranks: bool = False,
    kind: str = "gpu",
    compute: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> BenchResult:
    """Time each problem on 1, 2, 4, ... and `most` devices, strong and weak.

    Args:
        names: of `PROBLEMS`.
        most: devices, at least 1.
        scale: times the points of each problem; 1 fills GPUs of 80 GB.
        rounds: runs of each number of devices, in turn.
        seconds: of computing on one device, of which the number of steps follows.
        ranks: one rank for each device, started by mpirun, instead of all in one process.
        kind: of devices, gpu or simulated.
        compute: more keys of the section compute.
        folder: for files of runs; a temporary one if not given.

    Raises:
        UnsupportedError: there is no mpirun, or a run failed (its last words are in the message).
    """
    launcher = _launcher() if ranks else []
    # Powers of two, and what the host has where that is none (three or six GPUs).
    counts = sorted({1 << k for k in range(most.bit_length()) if 1 << k <= most} | {most})
    rows: list[ScalingRow] = []
    with tempfile.TemporaryDirectory(prefix="tetris-scaling-", dir=folder) as place:
        bench = _Bench(Path(place), kind, dict(compute or {}), launcher, rounds, seconds)
        for name in names:
            rows += bench.measure(name, PROBLEMS[name], counts, scale)
    return BenchResult(**provenance(), rounds=rounds, seconds=seconds, scaling=tuple(rows))


def _launcher() -> list[str]:
    found = next(filter(None, map(shutil.which, ("mpirun", "mpiexec"))), None)
    if found is None:
        msg = "bench scaling --ranks starts ranks by mpirun, and neither it nor mpiexec is in PATH"
        raise UnsupportedError(msg)
    return [found, "-n"]


@dataclass(frozen=True)
class _Measured:
    report: Mapping[str, Any]
    process_s: float
    digest: str


@dataclass
class _Bench:
    """One host, measured with runs in a folder."""

    folder: Path
    kind: str
    compute: Mapping[str, Any]
    launcher: Sequence[str]
    rounds: int
    seconds: float

    def measure(
        self, name: str, problem: ScalingProblem, counts: Sequence[int], scale: float
    ) -> Iterator[ScalingRow]:
        shape = problem.sized(scale)
        steps = 0 if problem.steady else self._steps(problem.config(shape))
        for mode in ("strong", "weak"):
            alone: ScalingRow | None = None
            for count in counts:
                # One device alone is both the first strong and the first weak row.
                if mode == "weak" and count == 1:
                    continue  # the same run as strong

                grown = shape if mode == "strong" else (*shape[:-1], shape[-1] * count)
                row = self._row(name, mode, problem, grown, steps, count)
                alone = alone or row
                _LOG.info("%s on %d: %.4g GStencil/s", name, count, row.rate / 1e9)
                yield row
                if mode == "strong" and count == counts[-1] > 1 and not problem.steady:
                    yield self._continued(row, alone, problem, steps)

    def _row(
        self,
        name: str,
        mode: str,
        problem: ScalingProblem,
        shape: Sequence[int],
        steps: int,
        count: int,
    ) -> ScalingRow:
        config = self._config(problem, shape, steps, count)
        if not problem.steady:
            self._tune(problem.config(shape), count)
        plan = self._plan(config, count)
        runs = [self._run(config, count) for _ in range(self.rounds)]
        points = math.prod(shape) * max(steps, 1)

        def computing(run: _Measured) -> float:
            phases = run.report["phases_s"]
            return float(phases["compute"] + phases["exchange"])

        rates = [points / computing(run) for run in runs]
        first, files = (
            statistics.median(
                sum(run.report["phases_s"].get(key, 0.0) for key in keys) for run in runs
            )
            for keys in (_START, _FILES)
        )
        outside = statistics.median(run.process_s - run.report["wall_s"] for run in runs)
        exchange = statistics.median(
            run.report["phases_s"]["exchange"] / computing(run) for run in runs
        )
        # A single worker has no row of its own in a report.
        used = {row["worker"] for row in runs[0].report["workers"]} or {""}
        return ScalingRow(
            problem=name,
            mode=mode,
            devices=count,
            used=max(len(used), len(runs[0].report["ranks"])),
            ranks=count if self.launcher else 1,
            shape=tuple(reversed(shape)),
            steps=steps,
            steady=Timing(statistics.median(rates), min(rates), max(rates)),
            predicted=None if problem.steady else points / plan["seconds"],
            exchange_share=exchange,
            first_step_s=outside + first,
            files_s=files,
            digest=runs[0].digest if len({run.digest for run in runs}) == 1 else "differs",
            methods=tuple(sorted(set(runs[0].report["methods"].values()))),
        )

    def _continued(
        self, row: ScalingRow, alone: ScalingRow, problem: ScalingProblem, steps: int
    ) -> ScalingRow:
        """One device begins, all of them end the run from its checkpoint in the middle."""
        shape = tuple(reversed(row.shape))
        self._run(self._config(problem, shape, steps, 1), 1)
        # As if a kill had come between the two checkpoints: the one in the middle is the newest.
        last = max((self.folder / "results" / "checkpoints").glob("*.h5"))
        last.unlink()

        config = self._config(problem, shape, steps, row.devices)
        run = self._run(config, row.devices, "--resume", "auto", keep=True)
        phases = run.report["phases_s"]
        half = steps - int(run.report["first_step"])
        rate = math.prod(shape) * half / (phases["compute"] + phases["exchange"])
        return ScalingRow(
            problem=row.problem,
            mode=f"continued from {alone.devices}",
            devices=row.devices,
            used=row.used,
            ranks=row.ranks,
            shape=row.shape,
            steps=half,
            steady=Timing(rate, rate, rate),
            predicted=None,
            exchange_share=phases["exchange"] / (phases["compute"] + phases["exchange"]),
            first_step_s=run.process_s
            - run.report["wall_s"]
            + sum(phases.get(key, 0.0) for key in _START),
            files_s=sum(phases.get(key, 0.0) for key in _FILES),
            digest=run.digest,
            methods=row.methods,
        )

    def _steps(self, config: Config) -> int:
        """As many as one device makes in the time that was asked for, by its plan; an even number,
        because a checkpoint lies in the middle.
        """
        plan = self._tune(config, 1)
        steps = round(self.seconds / float(plan["seconds"]) * _LONG_RUN)
        return max(_LEAST_STEPS, 2 * (steps // 2))

    def _tune(self, config: Config, count: int) -> Mapping[str, Any]:
        """Plan a run that is so long that every method has its turn; later plans remember the
        fastest, whatever they would have tried for so short a run.
        """
        config = {**config, "time": {**config.get("time", {}), "steps": _LONG_RUN}}
        return self._plan(self._complete(config, count, _LONG_RUN), count)

    def _config(
        self, problem: ScalingProblem, shape: Sequence[int], steps: int, count: int
    ) -> Config:
        config = problem.config(shape)
        if problem.steady:
            config["time"] = {"scheme": "steady"}
        else:
            config["time"] = {**config.get("time", {}), "steps": steps}
        return self._complete(config, count, steps)

    def _complete(self, config: Config, count: int, steps: int) -> Config:
        # Each rank takes a GPU of its own when it is told to take what is there.
        names = [f"{self.kind}:{k}" for k in range(1 if self.launcher else count)]
        devices = self.kind if self.launcher and self.kind == "gpu" else names
        return {
            **config,
            "compute": {"devices": devices, "method": "auto", **self.compute},
            "output": {"directory": str(self.folder / "results"), "pictures": False},
            **({"checkpoint": {"every": f"{steps // 2} steps", "keep": 2}} if steps else {}),
        }

    def _plan(self, config: Config, count: int) -> Mapping[str, Any]:
        said = self._call(config, count, "--json", "plan")
        # Launchers of ranks may say something before.
        found: Mapping[str, Any] = json.loads(said[said.index("{") :])
        return found

    def _run(self, config: Config, count: int, *flags: str, keep: bool = False) -> _Measured:
        results = self.folder / "results"
        if not keep:
            shutil.rmtree(results, ignore_errors=True)
        begun = time.perf_counter()
        self._call(config, count, "run", "-q", "--no-progress", *flags)
        seconds = time.perf_counter() - begun
        report = json.loads((results / "report.json").read_text(encoding="utf-8"))
        return _Measured(report, seconds, state_digest(results / "checkpoints"))

    def _call(self, config: Config, count: int, *words: str) -> str:
        path = self.folder / "run.yaml"
        # JSON is YAML.
        path.write_text(json.dumps(config), encoding="utf-8")
        command = [sys.executable, "-m", "tetris_sim", *words, str(path)]
        if self.launcher:
            command = [*self.launcher, str(count), *command]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            told = " ".join(done.stderr.strip().splitlines()[-5:])
            msg = f"{' '.join(words)} on {count} x {self.kind} ended with {done.returncode}: {told}"
            raise UnsupportedError(msg)
        return done.stdout


def state_digest(folder: Path) -> str:
    """Return 16 hexadecimal digits of all bits of the newest checkpoint's fields, "" without one.

    Only the fields count: a checkpoint also tells by whom it was made.
    """
    import h5py

    files = sorted(folder.glob("*.h5"))
    if not files:
        return ""
    digest = xxhash.xxh3_64()
    with h5py.File(files[-1]) as file:
        names = [name for name, data in sorted(file["fields"].items()) if data.ndim > 1]
        for name in names:
            data = file["fields"][name]
            rows = max(1, _SLICE_BYTES // (data.dtype.itemsize * math.prod(data.shape[1:])))
            for begin in range(0, data.shape[0], rows):
                digest.update(data[begin : begin + rows].data)
    return digest.hexdigest()
