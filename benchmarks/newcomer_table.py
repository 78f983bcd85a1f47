"""Fifteen tasks of a newcomer in tetris_sim, FiPy and py-pde: lines of input, time, error.

    python -m benchmarks.newcomer_table --peers PYTHON-OF-THE-PEERS -o newcomer.json

(at the top of the repository). What is typed is in `newcomer/` (the chip in `peers/`): NAME.yaml, which `tetris-sim run` runs
unless NAME.sh says more, or NAME.py; NAME_fipy.py and NAME_pde.py where the others can pose the
task. Each task is done in an empty folder, each command is a process of its own, from its start to
its end, and programs take turns. Before that, each of ours is done once with an empty cache of
kernels, which is told apart. Answers are compared with those of `newcomer_answers`.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import newcomer_answers as answers
from benchmarks.newcomer_answers import Numbers
from benchmarks.peers_bodies import exact
from tetris_sim.api.result import open_result

FOLDERS = (Path(__file__).with_name("newcomer"), Path(__file__).with_name("peers"))
OURS, PEERS = "tetris_sim", {"FiPy": "fipy", "py-pde": "pde"}
LIMIT = 600.0  # seconds that a command may take


@dataclass(frozen=True)
class Task:
    """Something that a newcomer wants.

    Attributes:
        name: of its files.
        what: it is.
        wanted: the right answer.
        tries: how often an input was run until its answer was right, by program, when these were
            written by somebody who had read the guides of all three.
        again: how often a script of a peer is run.
        files: made before: name and content.
    """

    name: str
    what: str
    wanted: Callable[[], Numbers]
    tries: dict[str, int]
    again: int = 1
    files: tuple[tuple[str, Callable[[], str]], ...] = ()

    def sources(self, program: str) -> list[Path]:
        """What is typed for a program; nothing if it cannot pose the task."""
        if program == OURS:
            names = [f"{self.name}.{kind}" for kind in ("yaml", "sh", "py")]
        else:
            names = [f"{self.name}_{PEERS[program]}.py"]
        return [path / name for name in names for path in FOLDERS if (path / name).exists()]

    def commands(self, program: str, python: str) -> list[list[str]]:
        """What is run, one after the other."""
        sources = self.sources(program)
        if program != OURS:
            return [[python, path.name] for path in sources] * self.again
        ours = [python, "-m", "tetris_sim"]
        last = sources[-1]
        if last.suffix == ".yaml":
            return [[*ours, "run", last.name]]
        if last.suffix == ".py":
            return [[python, last.name]]
        return [[*ours, *shlex.split(line)[1:]] for line in last.read_text().splitlines()]

    def answer(self, folder: Path) -> Numbers:
        """What a program has found in a folder."""
        if (folder / "answer.npy").exists():
            return np.asarray(np.load(folder / "answer.npy"))
        table = folder / "sweeps" / self.name / "table.csv"
        if table.exists() and not (folder / "results").exists():
            with table.open() as file:
                return np.array(
                    [float(row["temperature max [degC]"]) for row in csv.DictReader(file)]
                )
        return np.asarray(open_result(folder / "results" / self.name).field(), np.float64)

    def error(self, answer: Numbers) -> float:
        """Largest difference, of the range of the right answer."""
        wanted = self.wanted()
        # Of the steady plate, the corner where its faces disagree is left out.
        return float(np.abs(answer[len(answer) - len(wanted) :] - wanted).max() / np.ptp(wanted))


def _tries(ours: int = 1, fipy: int = 1, pde: int = 1) -> dict[str, int]:
    return {OURS: ours, "FiPy": fipy, "py-pde": pde}


TASKS = (
    Task("wall", "a wall of four layers, 12 h of frost", answers.wall, _tries()),
    Task("chip", "a chip between a board and a cold plate", exact, _tries()),
    Task(
        "weather",
        "the wall in weather from a table",
        answers.weather,
        _tries(),
        files=(("weather.csv", answers.weather_table),),
    ),
    Task("radiation", "a bar that radiates (NAFEMS T2)", answers.radiation, _tries(ours=2, fipy=3)),
    Task("tensor", "a sheet of slanted fibres", answers.tensor, _tries()),
    Task("steady", "a steady plate with convection (NAFEMS T4)", answers.steady, _tries(ours=2)),
    Task("initial", "an initial field from a formula", answers.initial, _tries()),
    Task("fin", "a cooling fin, steady, 2D", answers.fin, _tries(ours=2)),
    Task("laser", "a laser that moves, 3D", answers.laser, _tries(fipy=2)),
    Task(
        "own",
        "an equation of one's own (Fisher's front)",
        answers.own,
        _tries(ours=2, fipy=2, pde=2),
    ),
    Task("sweep", "twelve heat transfer coefficients", answers.sweep, _tries()),
    Task("notebook", "cells with a bar, a picture and a table", answers.notebook, _tries(pde=2)),
    Task("long", "40 days of granite, 49,000 stable steps", answers.long, _tries(ours=2)),
    Task("restart", "stopped halfway and continued", answers.restart, _tries(), again=2),
    Task(
        "verbs",
        "all verbs of the command line",
        answers.verbs,
        _tries(),
        files=(("measured.csv", answers.verbs_data),),
    ),
)


def do(task: Task, program: str, python: str, folder: Path, cache: Path) -> tuple[float, float]:
    """Do a task in a folder, made anew: (seconds on the clock, seconds of CPU)."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in task.sources(program):
        shutil.copy(path, folder)
    for name, make in task.files:
        (folder / name).write_text(make(), encoding="utf-8")

    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"TETRIS_SIM_CACHE_DIR": str(cache), "MPLBACKEND": "Agg"}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    for command in task.commands(program, python):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
        if done.returncode:
            msg = f"{task.name}, {program}: {command} ended with {done.returncode}\n{done.stderr}"
            raise RuntimeError(msg)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def lines_of(paths: Sequence[Path]) -> int:
    """Lines that say something."""
    kept = [line.strip() for path in paths for line in path.read_text().splitlines()]
    return sum(bool(line) and not line.startswith(("#", '"""')) for line in kept)


def measure(task: Task, peers: str | None, turns: int) -> list[dict[str, Any]]:
    """A row for each program that can pose the task."""
    programs = {OURS: sys.executable, **(dict.fromkeys(PEERS, peers) if peers else {})}
    posed = {name: python for name, python in programs.items() if python and task.sources(name)}
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder, cache = Path(name), Path(name) / "cache"
        first = do(task, OURS, sys.executable, folder / OURS, cache)
        taken: dict[str, list[tuple[float, float]]] = {program: [] for program in posed}
        for _ in range(turns):
            for program, python in posed.items():
                taken[program].append(do(task, program, python, folder / program, cache))

        for program in posed:
            row = {
                "task": task.name,
                "what": task.what,
                "program": program,
                "lines": lines_of(task.sources(program)),
                "tries": task.tries[program],
                "error": float(f"{task.error(task.answer(folder / program)):.3g}"),
                "seconds": [round(it[0], 2) for it in taken[program]],
                "cpu_seconds": [round(it[1], 2) for it in taken[program]],
            }
            if program == OURS:
                row |= {"first": round(first[0], 2), "first_cpu": round(first[1], 2)}
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def versions_of(peers: str | None) -> dict[str, str]:
    """Of what was compared."""
    found = {
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "numba": version("numba"),
    }
    if peers:
        ask = [peers, "-c", "import fipy, pde; print(fipy.__version__, pde.__version__)"]
        said = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()
        found |= {"FiPy": said[-2], "py-pde": said[-1]}
    return found


def result_of(rows: list[dict[str, Any]], peers: str | None) -> dict[str, Any]:
    """The rows with all that makes them believable."""
    cpu = next(it for it in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in it)
    return {
        "date": datetime.now().astimezone().date().isoformat(),
        "cpu": cpu.partition(":")[2].strip(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": versions_of(peers),
        "rows": rows,
    }


def joined(paths: Sequence[Path]) -> dict[str, Any]:
    """The results of one machine as runs of one file, those of equal circumstances together."""
    runs: dict[str, Any] = {}
    for path in paths:
        content = json.loads(path.read_text(encoding="utf-8"))
        for found in content.get("runs", {"": content}).values():
            name = f"{found['cpu']}, {found['cores']} cores, {found['date']}"
            rows = runs.setdefault(name, {**found, "rows": []})["rows"]
            rows += [row for row in found["rows"] if row not in rows]
    return {"runs": runs}


def write(found: dict[str, Any], path: Path | None) -> None:
    """What there is so far."""
    if path is not None:
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", help="only these")
    parser.add_argument("--peers", help="a Python that has FiPy and py-pde")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--join", nargs="+", type=Path, help="measure nothing, join results")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()

    if args.join:
        found = joined(args.join)
    else:
        tasks = [it for it in TASKS if it.name in (args.tasks or it.name)]
        found = result_of([], args.peers)
        for task in tasks:
            found["rows"] += measure(task, args.peers, args.turns)
            write(found, args.output)
    write(found, args.output)


if __name__ == "__main__":
    main()
