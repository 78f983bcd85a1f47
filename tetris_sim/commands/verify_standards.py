"""`verify --suite`: numbers that standards print, beside what this program finds."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable

from tetris_sim.errors import ExitCode
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.verification.bridges import bridges
from tetris_sim.verification.nafems import bestest, nafems
from tetris_sim.verification.standards import Standard
from tetris_sim.version import __version__

SUITES: dict[str, Callable[[], tuple[Standard, ...]]] = {
    "iso10211": bridges,
    "nafems": nafems,
    "bestest": bestest,
}
_COLUMNS = f"{'quantity':<34} {'found':>10} {'published':>10} {'may differ':>10}   result"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flag that chooses a suite."""
    parser.add_argument(
        "--suite", choices=tuple(SUITES), help="the numbers that a standard prints, instead"
    )


def run(args: argparse.Namespace) -> int:
    """Solve the cases of a suite and print what came out."""
    begin, machine = time.perf_counter(), find_machine()
    facts, passed = [], True
    for standard in SUITES[args.suite]():
        rows = standard.rows(machine)
        passed = passed and all(row.passed for row in rows)
        facts.append(
            {
                "case": standard.name,
                "source": standard.source,
                "rows": [dataclasses.asdict(row) | {"passed": row.passed} for row in rows],
            }
        )
        if args.json:
            continue
        print(f"{standard.name} ({standard.source})\n{_COLUMNS}")
        for row in rows:
            if not row.passed or not args.quiet:
                print(
                    f"{row.quantity:<34} {row.found:>10.6g} {row.published:>10g} "
                    f"{row.tolerance:>10.3g}   {'pass' if row.passed else 'FAIL'}",
                    flush=True,
                )

    seconds = time.perf_counter() - begin
    if args.json:
        about = {"version": __version__, "suite": args.suite, "passed": passed}
        print(json.dumps({**about, "seconds": round(seconds, 3), "cases": facts}))
    else:
        print(f"{args.suite}: {'passed' if passed else 'FAILED'}, {seconds:.1f} s")
    return ExitCode.OK if passed else ExitCode.VERIFICATION
