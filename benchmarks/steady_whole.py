"""Whole runs of the program to a steady state: how much of them is the solution?

    python benchmarks/steady_whole.py 256 --devices cpu
    python benchmarks/steady_whole.py 512 1024 --devices gpu -o steady-whole.json

A cube of glass with three bars of copper that are heated and a block of steel, one face at 0 degC,
one in air, to 1e-8. `--statistics` writes these, `--fields` the field as well; each run has a
process of its own, so its peak of memory is its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_SECONDS: dict[str, float] = {}


def body(n: int, directory: str, args: argparse.Namespace) -> dict[str, Any]:
    """The configuration."""
    bars = [
        {"material": "copper", "box": {"x": [at, at + 0.05], "y": [0.0, 0.3 + at]}}
        for at in (0.1, 0.4, 0.7)
    ]
    block = {"material": "steel", "box": {"z": [0.5, 0.8], "x": [0.3, 0.9], "y": [0.2, 0.6]}}
    once = {"every": "1 step"}
    return {
        "grid": {"shape": [n] * 3, "size": [1.0] * 3},
        "model": {
            "type": "heat",
            "regions": [{"material": "glass"}, *bars, block],
            "sources": [{"power": 30.0, "material": "copper"}],
        },
        "initial": {"type": "constant", "value": 0},
        "boundaries": {
            "z-": {"type": "dirichlet", "value": 0},
            "x+": {"type": "robin", "h": 8, "ambient": 20},
            "*": {"type": "neumann"},
        },
        "time": {"scheme": "steady", "tolerance": 1e-8},
        "output": {
            "directory": directory,
            **({"fields": once} if args.fields else {}),
            **({"statistics": once} if args.statistics else {}),
        },
        "compute": {"devices": args.devices},
    }


def timed(module: Any, name: str) -> None:
    """Add up what a function of a module takes."""
    given: Callable[..., Any] = getattr(module, name)

    def called(*arguments: Any, **keywords: Any) -> Any:
        begin = time.perf_counter()
        try:
            return given(*arguments, **keywords)
        finally:
            _SECONDS[name] = _SECONDS.get(name, 0.0) + time.perf_counter() - begin

    setattr(module, name, called)


def run(n: int, args: argparse.Namespace) -> dict[str, Any]:
    """One run: seconds by phase, and memory of the host at most."""
    begin = time.perf_counter()
    from tetris_sim.config import make_config
    from tetris_sim.simulation.launch import launch
    from tetris_sim.solvers import balance, solver, steady, stepper

    timed(solver, "conjugate_gradients")
    timed(solver.OneDevice, "cycle")
    timed(steady, "settle")
    timed(balance.LinearSystems, "at")
    timed(stepper, "solve_steady")
    with tempfile.TemporaryDirectory() as folder:
        report = launch(make_config(body(n, f"{folder}/run", args)))
    whole = time.perf_counter() - begin
    solution = _SECONDS["conjugate_gradients"] + _SECONDS["cycle"]
    return {
        "n": n,
        "devices": args.devices,
        "fields": args.fields,
        "statistics": args.statistics,
        "whole_s": whole,
        "solution_s": solution,
        "ratio": whole / solution,
        "phases_s": {name: round(seconds, 3) for name, seconds in _SECONDS.items()},
        "report_s": {name: round(it, 3) for name, it in report.phases_s.items()},
        "host_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "note": report.notes[0],
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="+", type=int)
    parser.add_argument("--devices", default="cpu", choices=["cpu", "gpu"])
    parser.add_argument("--fields", action="store_true")
    parser.add_argument("--statistics", action="store_true")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    if len(args.sizes) == 1:
        rows = [run(args.sizes[0], args)]
        print(json.dumps(rows[0]), flush=True)
    else:
        rows = []
        keys = [f"--{it}" for it in ("fields", "statistics") if getattr(args, it)]
        for n in args.sizes:
            command = [sys.executable, __file__, str(n), "--devices", args.devices, *keys]
            found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            rows.append(json.loads(found.splitlines()[-1]))
            print(found, end="", flush=True)
    if args.output:
        args.output.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
