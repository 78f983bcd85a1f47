"""`verify --precision`: how far other formats are from float64 on the paper's copper plate."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from tetris_sim.errors import ConfigError, ExitCode
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.verification.precision import (
    ABSOLUTE,
    DEFAULT_POINTS,
    PAPER_FLOAT32,
    PAPER_POINTS,
    PAPER_STEPS,
    RELATIVE,
    Deviation,
    PrecisionCase,
    as_json,
    compare,
    default_steps,
    notes,
    plate,
)
from tetris_sim.verification.solver import Solver
from tetris_sim.verification.suite import choose_methods
from tetris_sim.version import __version__

_METHOD = "cpu.tessellate"
_LEAST_POINTS = 8
_BOUNDS = [f">{bound:g} degC" for bound in ABSOLUTE] + [f">{bound:.0%}" for bound in RELATIVE]
_HEAD = f"{'format':<9} {'computed by':<15}" + "".join(f"{bound:>10}" for bound in _BOUNDS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of the report."""
    group = parser.add_argument_group("precision report")
    group.add_argument(
        "--precision",
        action="store_true",
        help="instead: how far float32, TF32, bfloat16 and float16 are from float64 "
        "on a copper plate",
    )

    group.add_argument(
        "--points",
        type=int,
        metavar="N",
        help=f"points along each edge of the plate (default {DEFAULT_POINTS})",
    )
    group.add_argument(
        "--steps",
        type=int,
        metavar="N",
        help="time steps (default: as many as make 19.22 ms, as in the paper)",
    )
    group.add_argument(
        "--weights",
        choices=("balanced", "rounded"),
        help="emulated formats: keep the sum of the weights (default), "
        "or round each weight by itself",
    )


def is_asked_for(args: argparse.Namespace) -> bool:
    """Whether the report is wanted.

    Raises:
        ConfigError: flags are mixed that do not belong together.
    """
    given = [
        f"--{name}" for name in ("points", "steps", "weights") if getattr(args, name) is not None
    ]
    if given and not args.precision:
        msg = f"{', '.join(given)} belongs to --precision; give that too"
        raise ConfigError(msg)
    if args.precision and (args.case is not None or args.quick):
        flag = "--quick" if args.case is None else "--case"
        msg = (
            f"{flag} chooses among the cases with known answers; --precision computes one case of "
            "its own"
        )
        raise ConfigError(msg)
    return bool(args.precision)


def run(args: argparse.Namespace) -> int:
    """Compute the report and print it.

    Raises:
        ConfigError: the grid or the method cannot be had.
    """
    points = DEFAULT_POINTS if args.points is None else args.points
    steps = default_steps(points) if args.steps is None else args.steps
    if points < _LEAST_POINTS or steps < 1:
        msg = (
            f"--points {points} --steps {steps}: at least {_LEAST_POINTS} points and 1 step are "
            "wanted"
        )
        raise ConfigError(msg)

    solver = _solver(args.method or _METHOD, points)
    begin = time.perf_counter()
    case, formats = compare(
        solver, points, steps, balanced=args.weights != "rounded", half=_half_solvers(points)
    )
    if not args.json:
        print("\n".join(_case_lines(case)), flush=True)

    # A row is printed as soon as it is computed.
    rows: list[Deviation] = []
    for row in formats:
        rows.append(row)
        if not args.json:
            print(_row(row.name, row.computed_by, [*row.absolute, *row.relative]), flush=True)

    seconds = time.perf_counter() - begin
    if args.json:
        print(json.dumps(_document(case, rows, seconds)))
    else:
        print("\n".join(_end_lines(case, rows, seconds)))
    return ExitCode.OK


def _solver(name: str, points: int) -> Solver:
    (method,) = choose_methods(name)
    for precision in ("float64", "float32"):
        why_not = method.refusal(plate(points, 1, precision))
        if why_not is not None:
            msg = f"--method {name} does not compute {precision}: {why_not}"
            raise ConfigError(msg)
    return Solver(method, find_machine())


def _half_solvers(points: int) -> list[Solver]:
    """The methods of this machine that store float16; of those with the same bits one."""
    machine, stepwise, solvers = find_machine(), 0, []
    for method in choose_methods(None):
        if method.refusal(plate(points, 1, "float16")) is None:
            stepwise += method.exact
            if not method.exact or stepwise == 1:
                solvers.append(Solver(method, machine))
    return solvers


def _case_lines(case: PrecisionCase) -> list[str]:
    return [
        f"copper plate of 15 mm, {case.points} x {case.points} points, {case.steps} steps "
        f"({case.time_s * 1e3:.4g} ms): centre {case.hottest:.1f} -> {case.centre:.2f} degC",
        f"a step changes no point by more than {case.first_change:.2g} degC at first, "
        f"{case.last_change:.2g} degC at the end",
        "share of the points that are off float64 by more than:",
        _HEAD,
    ]


def _row(name: str, computed_by: str, shares: list[float]) -> str:
    return f"{name:<9} {computed_by:<15}" + "".join(f"{share:>10.1%}" for share in shares)


def _end_lines(case: PrecisionCase, rows: list[Deviation], seconds: float) -> list[str]:
    paper = _row("float32", "paper, table 4", [share / 100 for share in PAPER_FLOAT32])
    numbers = [
        f"{row.name:<9} largest deviation {row.largest:.3g} degC, centre {row.centre:.2f} degC, "
        f"spacing at {case.hottest:.0f} degC {row.spacing:.2g} degC, unchanged by the last step "
        f"{row.unchanged:.1%}"
        for row in rows
    ]
    remarks = [note for row in rows for note in notes(case, row)]
    about = f"(the paper: {PAPER_POINTS} x {PAPER_POINTS} points, {PAPER_STEPS} steps)"
    return [f"{paper}  {about}", "", *numbers, "", *remarks, f"{seconds:.1f} s"]


def _document(case: PrecisionCase, rows: list[Deviation], seconds: float) -> dict[str, Any]:
    return {
        "version": __version__,
        "seconds": round(seconds, 3),
        "case": as_json(case),
        "absolute_bounds_degC": ABSOLUTE,
        "relative_bounds": RELATIVE,
        "formats": [{**as_json(row), "notes": list(notes(case, row))} for row in rows],
        "paper": {
            "points": PAPER_POINTS,
            "steps": PAPER_STEPS,
            "absolute": [share / 100 for share in PAPER_FLOAT32[:3]],
            "relative": [share / 100 for share in PAPER_FLOAT32[3:]],
        },
    }
