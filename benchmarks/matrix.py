"""What runs several steps a pass: kinds of problems x axes x precision x device.

    python benchmarks/matrix.py plan docs/benchmarks/matrix.json
    python benchmarks/matrix.py time gpu docs/benchmarks/matrix.json ["graded axes|3|float64" ...]
    python benchmarks/matrix.py time cpu docs/benchmarks/matrix.json [BEGINNING OF A CELL ...]

`plan` asks every method of both kinds of devices whether it takes a problem; no GPU is needed.
`time` runs each problem, or those whose cells begin with what is given, by `tetris_sim.run`: once
so that everything is tuned and compiled, then until it has computed for long enough. It keeps the
rate that the report of the run says. What the file has of other devices or cells stays. A problem
is what a user writes: every kind is a configuration. Fields begin as random numbers and faces are
insulated, where a kind says nothing else.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tetris_sim as ts
from tetris_sim.errors import TetrisError
from tetris_sim.scheduler.machine.placement import every_method
from tetris_sim.support.files import atomic_file

Section = dict[str, Any]
AXES = "xyz"
SMALL = {1: (4096,), 2: (192, 160), 3: (64, 48, 40)}  # points along x, y, z of what is only planned
TIMED = {
    "gpu": {1: (1 << 27,), 2: (10240, 10240), 3: (768, 768, 768)},
    "cpu": {1: (1 << 24,), 2: (4096, 4096), 3: (256, 256, 256)},
}
SECONDS = 1.0  # of computing in a timed run, about
REPEATS = 4  # runs, after the first that tunes; the first of these only finds how many steps
PRECISIONS = ("float64", "float32")
STEPS = 24

PLAIN = {"conductivity": 2.0, "density": 1000.0, "specific_heat": 800.0}
WATER = {
    "conductivity": 0.6,
    "density": 1000.0,
    "specific_heat": 4000.0,
    "latent_heat": 334e3,
    "solidus": 0.3,
    "liquidus": 0.5,
}
WARM = {**PLAIN, "conductivity": {"table": [[0.1 * i, 2.0 + 0.05 * i] for i in range(11)]}}


class Case:
    """A kind of problem on a grid, as the sections of a configuration."""

    def __init__(self, shape: tuple[int, ...], folder: Path) -> None:
        """Take the points along x, y, z and a folder for arrays that kinds read."""
        self.shape, self.folder = shape, folder
        self.ndim, self.size = len(shape), [1e-3 * n for n in shape]
        self.config: Section = {
            "grid": {"shape": list(shape), "size": list(self.size)},
            "model": {"type": "heat", "materials": {"m0": PLAIN}, "regions": [{"material": "m0"}]},
            "initial": {"type": "random", "low": 0.0, "high": 1.0},
            "boundaries": {"*": {"type": "insulated"}},
            "time": {"steps": STEPS},
        }

    @property
    def model(self) -> Section:
        """The model, which is a body until a kind says something else."""
        model: Section = self.config["model"]
        return model

    def equations(self, equations: Section, **more: Any) -> None:
        """Replace the body by equations; `more` is further keys of the model."""
        initial: Section = {"type": "random", "low": 0.0, "high": 1.0}
        fields = {it: {"equation": text, "initial": initial} for it, text in equations.items()}
        self.config["model"] = {"type": "pde", "fields": fields, **more}
        self.config["grid"]["size"] = list(map(float, self.shape))
        self.config["boundaries"] = {"*": {"type": "neumann"}}
        del self.config["initial"]

    def materials(self, n: int, of: Callable[[int], Section]) -> None:
        """Give the body n materials."""
        self.model["materials"] = {f"m{i}": of(i) for i in range(n)}

    def boxes(self, n: int, of: Callable[[int], Section]) -> None:
        """Sixty boxes on faces of cells, of n materials."""
        self.materials(n, of)
        rng = np.random.default_rng(5)
        regions: list[Section] = [{"material": "m0"}]
        for i in range(60):
            low = [int(rng.integers(0, 3 * k // 4)) for k in self.shape]
            high = [
                a + max(1, int(k * rng.uniform(0.05, 0.25)))
                for a, k in zip(low, self.shape, strict=True)
            ]
            box = {
                x: [1e-3 * a, 1e-3 * min(b, k)]
                for x, a, b, k in zip(AXES, low, high, self.shape, strict=False)
            }
            regions.append({"material": f"m{i % n}", "box": box})
        self.model["regions"] = regions

    def anywhere(self, n: int, of: Callable[[int], Section]) -> None:
        """Another of n materials at every point, from a file."""
        self.materials(n, of)
        path = self.folder / f"labels-{n}-{'x'.join(map(str, self.shape))}.npy"
        if not path.exists():
            ids = np.random.default_rng(5).integers(0, n, self.shape[::-1], dtype=np.uint8)
            np.save(path, ids)
        labels = {"labels": str(path), "materials": {str(i): f"m{i}" for i in range(n)}}
        self.model["regions"] = [labels]

    def graded(self) -> None:
        """Let cells become wider along every axis, by a quarter from end to end."""
        axes = zip(AXES, self.shape, self.size, strict=False)
        graded = {}
        for x, n, size in axes:
            widths = np.linspace(1.0, 1.25, n)
            edges = np.concatenate([[0.0], np.cumsum(widths)]) * (size / widths.sum())
            edges[-1] = size
            graded[x] = {"edges": edges.tolist()}
        self.config["grid"]["graded"] = graded

    def source(self, **keys: Any) -> None:
        """Heat the body."""
        self.model.setdefault("sources", []).append(keys)


def conducting(i: int) -> Section:
    """Material number i that conducts."""
    return {**PLAIN, "conductivity": 1.0 + 0.2 * i}


def melting(i: int) -> Section:
    """Material number i that melts."""
    return {**WATER, "conductivity": 0.5 + 0.1 * (i % 8)}


def warming(i: int) -> Section:
    """Material number i that conducts better where it is warm."""
    table = [[0.1 * k, 1.0 + 0.2 * i + 0.05 * k] for k in range(11)]
    return {**PLAIN, "conductivity": {"table": table}}


FORMULA = {1: "1e5*sin(9*x)", 2: "1e5*sin(9*x)*cos(7*y)", 3: "1e5*sin(9*x)*cos(7*y)*cos(z)"}
GRAY_SCOTT = {
    "u": "0.16*laplace(u) - u*v**2 + 0.035*(1 - u)",
    "v": "0.08*laplace(v) + u*v**2 - 0.1*v",
}
KINDS: dict[str, Callable[[Case], None]] = {}


def kind(name: str) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """Enter a kind of problem into the list."""

    def enter(change: Callable[[Case], None]) -> Callable[[Case], None]:
        KINDS[name] = change
        return change

    return enter


@kind("constant")
def _(case: Case) -> None:
    """One material and nothing else."""


@kind("constant, faces T(t)")
def _(case: Case) -> None:
    case.config["boundaries"]["x-"] = {"type": "dirichlet", "value": "sin(t)"}


@kind("constant, a face that radiates")
def _(case: Case) -> None:
    case.config["boundaries"]["x-"] = {"type": "radiation", "emissivity": 0.8, "ambient": 20.0}


@kind("constant, static source")
def _(case: Case) -> None:
    case.source(density=FORMULA[case.ndim])


@kind("constant, source s(x) g(t)")
def _(case: Case) -> None:
    case.source(density=f"{FORMULA[case.ndim]}*sin(t)")


@kind("constant, source of T")
def _(case: Case) -> None:
    case.source(density="1e3*exp(T)")


@kind("graded axes")
def _(case: Case) -> None:
    case.graded()


@kind("graded axes, static source")
def _(case: Case) -> None:
    case.graded()
    case.source(density=FORMULA[case.ndim])


@kind("8 materials in boxes")
def _(case: Case) -> None:
    case.boxes(8, conducting)


@kind("8 materials, a source in each")
def _(case: Case) -> None:
    case.boxes(8, conducting)
    for i in range(8):
        case.source(density=1e3 * i, material=f"m{i}")


@kind("8 materials, static source")
def _(case: Case) -> None:
    case.boxes(8, conducting)
    case.source(density=FORMULA[case.ndim])


@kind("8 materials, random per point")
def _(case: Case) -> None:
    case.anywhere(8, conducting)


@kind("8 materials, contacts")
def _(case: Case) -> None:
    case.boxes(8, conducting)
    case.model["contacts"] = [{"between": ["m0", "m1"], "resistance": 1e-4}]


@kind("8 materials, fluid and void")
def _(case: Case) -> None:
    case.boxes(8, conducting)
    half, step = case.shape[0] // 2 * 1e-3, 1e-3 * (case.shape[0] // 8)
    case.model["regions"] += [
        {"fluid": {"ambient": 0.3, "h": 15.0}, "box": {"x": [half, half + step]}},
        {"void": True, "box": {"x": [0.0, step]}},
    ]


@kind("8 materials, graded axes")
def _(case: Case) -> None:
    case.boxes(8, conducting)
    case.graded()


@kind("40 materials in boxes")
def _(case: Case) -> None:
    case.boxes(40, conducting)


@kind("40 materials, random per point")
def _(case: Case) -> None:
    case.anywhere(40, conducting)


@kind("a body off faces of cells")
def _(case: Case) -> None:
    case.materials(2, conducting)
    middle, radius = [size / 2 for size in case.size], min(case.size) / 3
    terms = "+".join(f"({x}-{m!r})**2" for x, m in zip(AXES, middle, strict=False))
    case.model["regions"].append({"material": "m1", "where": f"{terms} < {radius**2!r}"})


@kind("melting, one material")
def _(case: Case) -> None:
    case.materials(1, melting)


@kind("melting, 8 materials in boxes")
def _(case: Case) -> None:
    case.boxes(8, melting)


@kind("melting, graded axes")
def _(case: Case) -> None:
    case.materials(1, melting)
    case.graded()


@kind("melting, static source")
def _(case: Case) -> None:
    case.materials(1, melting)
    case.source(density=FORMULA[case.ndim])


@kind("k(T), one material")
def _(case: Case) -> None:
    case.materials(1, warming)


@kind("k(T), 8 materials in boxes")
def _(case: Case) -> None:
    case.boxes(8, warming)


@kind("k(T), graded axes")
def _(case: Case) -> None:
    case.materials(1, warming)
    case.graded()


@kind("surfaces inside that radiate")
def _(case: Case) -> None:
    case.boxes(8, conducting)
    fluid = {"ambient": 20.0, "h": 5.0, "emissivity": 0.9}
    half, step = case.shape[0] // 2 * 1e-3, 1e-3 * (case.shape[0] // 8)
    case.model["regions"].append({"fluid": fluid, "box": {"x": [half, half + step]}})


@kind("a material that moves")
def _(case: Case) -> None:
    case.model["regions"][0]["velocity"] = ["0.01 mm/s", 0, 0][: case.ndim]
    case.config["boundaries"]["x-"] = {"type": "dirichlet", "value": 0.5}


@kind("Gray-Scott, euler")
def _(case: Case) -> None:
    case.equations(GRAY_SCOTT)


@kind("Gray-Scott, rk4")
def _(case: Case) -> None:
    case.equations(GRAY_SCOTT)
    case.config["time"]["scheme"] = "rk4"


@kind("Gray-Scott, adaptive")
def _(case: Case) -> None:
    case.equations(GRAY_SCOTT)
    case.config["time"] = {"t_end": 20.0, "tolerance": 1e-4}


@kind("equations, faces f(t)")
def _(case: Case) -> None:
    case.equations(GRAY_SCOTT)
    case.config["boundaries"]["x-"] = {"type": "dirichlet", "value": "0.5 + 0.1*sin(t)"}


@kind("diffusion with velocities v(x)")
def _(case: Case) -> None:
    wind = " - ".join(f"sin(0.1*{x})*d{x}(u)" for x in AXES[: case.ndim])
    case.equations({"u": f"laplace(u) - {wind}"})


@kind("one equation, source f(x)")
def _(case: Case) -> None:
    case.equations({"u": f"laplace(u) + {FORMULA[case.ndim]}"})


@kind("Allen-Cahn")
def _(case: Case) -> None:
    case.equations({"u": "laplace(u) + u - u**3"})


@kind("Cahn-Hilliard")
def _(case: Case) -> None:
    case.equations({"c": "laplace(c**3 - c - laplace(c))"})


@kind("waves")
def _(case: Case) -> None:
    case.equations({"u": "w", "w": "laplace(u)"})
    case.config["time"]["scheme"] = "rk4"


def configuration(name: str, shape: tuple[int, ...], precision: str, folder: Path) -> Section:
    """The configuration of a kind."""
    case = Case(shape, folder)
    KINDS[name](case)
    return {**case.config, "compute": {"precision": precision}}


def asked(problem: ts.Problem) -> Iterator[tuple[str, str | None]]:
    """What every method says of a problem: its name, and why it refuses it."""
    for method in every_method():
        yield method.name, method.refusal(problem)


def planned(folder: Path) -> list[Section]:
    """Every cell of the matrix: which methods take it several steps a pass, and what keeps the
    others off.
    """
    return [
        _planned(name, ndim, precision, configuration(name, shape, precision, folder))
        for name in KINDS
        for ndim, shape in SMALL.items()
        for precision in PRECISIONS
    ]


def _planned(name: str, ndim: int, precision: str, config: Section) -> Section:
    row: Section = {"kind": name, "axes": ndim, "precision": precision}
    try:
        problem = ts.make_config(config).build()
    except TetrisError as error:
        return {**row, "refused": str(error).splitlines()[-1]}

    answers = dict(asked(problem))
    for device in ("cpu", "gpu"):
        own = {key: why for key, why in answers.items() if key.startswith(device)}
        row[device] = [
            key for key, why in own.items() if why is None and not key.endswith(".plain")
        ]
        if not row[device]:
            row[f"why not {device}"] = own.get(f"{device}.stream") or own.get("cpu.tessellate")
    return row


@cache
def commit() -> str:
    """The commit that is measured, which TETRIS_COMMIT says where the files lie without it."""
    words = ["git", "rev-parse", "--short", "HEAD"]
    found = (
        os.environ.get("TETRIS_COMMIT")
        or subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    )
    return found or "unknown"


def timed(device: str, name: str, ndim: int, precision: str, folder: Path) -> Section:
    """The rate of a kind on a device through `tetris_sim.run`."""
    config = configuration(name, TIMED[device][ndim], precision, folder)
    config["compute"] = {"precision": precision, "devices": device}
    config["output"] = {"pictures": False}
    config["checkpoint"] = {"at_end": False}
    steps, reports = STEPS, []
    for last in (False, *(True,) * REPEATS):
        if "steps" in config["time"]:
            config["time"]["steps"] = steps
        with tempfile.TemporaryDirectory(dir=folder) as results:
            reports.append(ts.run(config, results, progress=False, overwrite=True).report)
        if not last:
            _tune(config, folder)
        if len(reports) <= 2:  # the first run after tuning says how fast it is
            seconds = max(1e-3, reports[-1].phases_s["compute"])
            steps = max(STEPS, int(reports[-1].steps * SECONDS / seconds) // 12 * 12)

    # What the first run took besides computing is what a fresh start takes, and that of the last a
    # warm one. The first two runs are too short, or tuned for short ones.
    rates = [report.points_per_second / 1e9 for report in reports[2:]]
    fresh, warm = (it.wall_s - it.phases_s["compute"] for it in (reports[0], reports[-1]))
    return {
        "GStencil/s": statistics.median(rates),
        "spread": [min(rates), max(rates)],
        "methods": sorted(set(reports[-1].methods.values())),
        "fresh s": fresh,
        "warm s": warm,
        "hardware": reports[-1].machine["device"],
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "shape": list(TIMED[device][ndim]),
    }


def _tune(config: Section, folder: Path) -> None:
    """What `tetris-sim tune` does: every candidate has its turn, as for a run of any length."""
    path = folder / "tuned.json"  # JSON is YAML
    path.write_text(json.dumps(config), encoding="utf-8")
    words = [sys.executable, "-m", "tetris_sim", "tune", str(path), "-q", "--no-progress"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def main(words: list[str]) -> None:
    """Plan or time, and write the file."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if words[0] == "plan":
            path, rows = Path(words[1]), planned(folder)
            record = _read(path)
            record["cells"] = rows
            _write(path, record)
            _say(rows)
            return

        device, path, wanted = words[1], Path(words[2]), words[3:]
        record = _read(path)
        record.setdefault("rates", {}).setdefault(device, {})
        for name, ndim, precision in itertools.product(KINDS, (2, 3), PRECISIONS):
            cell = f"{name}|{ndim}|{precision}"
            if wanted and not any(cell.startswith(word) for word in wanted):
                continue
            found = timed(device, name, ndim, precision, folder)
            record["rates"][device][cell] = found
            _write(path, record)
            numbers = found["GStencil/s"], found["fresh s"], found["warm s"]
            print(
                f"{cell:44} {numbers[0]:8.1f} {numbers[1]:6.1f} {numbers[2]:6.1f}",
                *found["methods"],
                flush=True,
            )


def _read(path: Path) -> Section:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _write(path: Path, record: Section) -> None:
    with atomic_file(path) as there:
        there.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")


def _say(rows: list[Section]) -> None:
    cells = [(row, device) for row in rows for device in ("cpu", "gpu")]
    blocked = sum(bool(row.get(device)) for row, device in cells)
    print(f"{blocked} of {len(cells)} cells advance several steps a pass")
    for row, device in cells:
        if not row.get(device):
            why = row.get("refused") or row.get(f"why not {device}")
            print(f"{row['kind']:34} {row['axes']}D {row['precision']} {device}: {why}")


if __name__ == "__main__":
    main(sys.argv[1:])
