"""How a process ages: many simulations in one process, many outputs and checkpoints of one run,
which another process watches.

`python tests/support/long_life.py 1000 --outputs 100000 --json docs/trust/long_life.json` takes an
hour or two; what it tells at ten moments should not grow.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # beside the tests it is imported with what pytest puts on the path
    sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

import tetris_sim as ts

MOMENTS = 10
# A process that has just begun still loads and compiles.
WARM = 0.1  # of all
_PLATE = {
    "grid": {"shape": [24, 16], "size": ["24 mm", "16 mm"]},
    "model": {"type": "heat", "material": "copper"},
    "initial": {"type": "gaussian", "amplitude": "100 K", "sigma": "4 mm"},
    "boundaries": {"*": {"type": "neumann"}},
    "compute": {"devices": "cpu", "method": "cpu.plain", "threads": 1, "tuning_budget": 0},
}


@dataclass
class Age:
    """What a process holds at one moment.

    Attributes:
        count: simulations or outputs until then.
        milliseconds: of each of them since the moment before.
        memory_kib: resident memory.
        descriptors: open files.
        threads: of the process.
        entries: files and folders in the results, 0 if nothing is written.
        watcher_kib: resident memory of the process that watches, 0 without one.
    """

    count: int
    milliseconds: float
    memory_kib: int
    descriptors: int
    threads: int
    entries: int = 0
    watcher_kib: int = 0


def resident_kib(pid: int | str) -> int:
    """Resident memory of a process; 0 if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


def age(count: int, since: float, share: int, **more: int) -> Age:
    """This process now, after so many more since a moment of the monotonic clock."""
    gc.collect()
    return Age(
        count,
        round((time.monotonic() - since) / share * 1e3, 3),
        resident_kib("self"),
        len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
        **more,
    )


def simulations(count: int, tell: Callable[[Age], None]) -> None:
    """Make simulations one after the other, every other one with files; tell how they age."""
    share = max(1, count // MOMENTS)
    with tempfile.TemporaryDirectory(prefix="tetris_sim_life_") as folder:
        since = time.monotonic()
        for number in range(1, count + 1):
            place = f"{folder}/{number % 4}" if number % 2 else None
            given = _PLATE | {"time": {"steps": 20 + number % 7}}
            with ts.simulate(given, place, overwrite=True) as simulation:
                simulation.run()
                simulation.field()
            if number % share == 0:
                tell(age(number, since, share))
                since = time.monotonic()


@contextlib.contextmanager
def watched(folder: Path) -> Iterator[int]:
    """Watch a run from another process, whose number this is."""
    command = [sys.executable, "-m", "tetris_sim", "watch", str(folder), "--interval", "0.5"]
    root = str(Path(__file__).resolve().parents[2])
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, env=os.environ | {"PYTHONPATH": root}
    ) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def outputs(count: int, tell: Callable[[Age], None]) -> None:
    """One run that writes a field, a row of statistics, a probe and a checkpoint at every step."""
    share = max(1, count // MOMENTS)
    output: dict[str, Any] = {name: {"every": "1 steps"} for name in ("fields", "statistics")}
    output["probes"] = [{"name": "mid", "at": ["12 mm", "8 mm"], "every": "1 steps"}]
    given = _PLATE | {
        "time": {"steps": count},
        "output": output,
        "checkpoint": {"every": "1 steps", "keep": 2},
    }
    with tempfile.TemporaryDirectory(prefix="tetris_sim_life_") as temporary:
        folder = Path(temporary) / "out"
        with ts.simulate(given, folder) as simulation, contextlib.ExitStack() as beside:
            since, watcher = time.monotonic(), 0

            def look(sim: ts.Simulation) -> None:
                nonlocal since, watcher
                watcher = watcher or beside.enter_context(watched(folder))
                entries = sum(1 for _ in folder.rglob("*"))
                more = {"entries": entries, "watcher_kib": resident_kib(watcher)}
                tell(age(sim.step, since, share, **more))
                since = time.monotonic()

            simulation.run(every=f"{share} steps", call=look)


def grown(ages: list[Age], name: str) -> float:
    """How much larger a number is at the end than at the first moment after the warm part."""
    warm = [it for it in ages if it.count >= WARM * ages[-1].count and getattr(it, name)]
    return float(getattr(warm[-1], name) - getattr(warm[0], name)) if warm else 0.0


def main(words: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("simulations", type=int)
    parser.add_argument("--outputs", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(words)

    told: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "cores": os.cpu_count()}
    for work, count in ((simulations, args.simulations), (outputs, args.outputs)):

        def tell(found: Age, name: str = work.__name__) -> None:
            told.setdefault(name, []).append(asdict(found))
            if args.json is not None:
                args.json.write_text(json.dumps(told, indent=1) + "\n")

        if count:
            work(count, tell)
    sys.stdout.write(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
