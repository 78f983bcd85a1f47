"""`verify`: check this machine's answers against analytic solutions, or report on precision."""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from typing import Any

from tetris_sim.errors import ConfigError, ExitCode
from tetris_sim.model.stencils.catalogue import catalogue
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.support.wording import listed, suggestion
from tetris_sim.verification.case import CaseSolver
from tetris_sim.verification.engineering import engineering_cases
from tetris_sim.verification.equations import PosedSystem
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
from tetris_sim.verification.printed import systems
from tetris_sim.verification.public import public_cases
from tetris_sim.verification.standards import Standard, bestest, bridges, nafems
from tetris_sim.verification.suite import (
    VerificationResult,
    all_cases,
    choose_methods,
    quick_cases,
    verify,
)
from tetris_sim.version import __version__

# `verify --suite`: numbers that standards print, beside what this program finds.

SUITES: dict[str, Callable[[], tuple[Standard | PosedSystem, ...]]] = {
    "iso10211": bridges,
    "nafems": nafems,
    "bestest": bestest,
    "public": public_cases,
    "engineering": engineering_cases,
    "equations": systems,
}
_STANDARDS_COLUMNS = (
    f"{'quantity':<36} {'published':>10} {'found':>10} {'error':>10} {'may differ':>10}   result"
)


def add_suite_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flag that chooses a suite."""
    parser.add_argument(
        "--suite",
        choices=tuple(SUITES),
        help="the numbers that a standard or public test cases print, instead",
    )


def run_suite(args: argparse.Namespace) -> int:
    """Solve the cases of a suite and print what came out.

    Raises:
        ConfigError: no case has the name asked for.
    """
    begin = time.perf_counter()
    known, facts, passed = SUITES[args.suite](), [], True
    asked = [it for it in known if args.case is None or args.case in it.name]
    if not asked:
        names = listed([it.name for it in known], "and")
        msg = f"--case {args.case}: none of {len(known)} cases has this in its name: {names}"
        raise ConfigError(msg)

    for standard in asked:
        started = time.perf_counter()
        rows = standard.rows()
        took = time.perf_counter() - started
        passed = passed and all(row.passed for row in rows)
        facts.append(
            {
                "case": standard.name,
                "source": standard.source,
                "seconds": round(took, 3),
                "rows": [dataclasses.asdict(row) | {"passed": row.passed} for row in rows],
            }
        )
        if args.json:
            continue
        print(f"{standard.name} ({standard.source}), {took:.1f} s\n{_STANDARDS_COLUMNS}")
        for row in rows:
            if not row.passed or not args.quiet:
                print(
                    f"{row.quantity:<36} {row.published:>10g} {row.found:>10.6g} "
                    f"{row.found - row.published:>10.3g} {row.tolerance:>10.3g}   "
                    f"{'pass' if row.passed else 'FAIL'}",
                    flush=True,
                )

    seconds = time.perf_counter() - begin
    if args.json:
        about = {"version": __version__, "suite": args.suite, "passed": passed}
        print(json.dumps({**about, "seconds": round(seconds, 3), "cases": facts}))
    else:
        print(f"{args.suite}: {'passed' if passed else 'FAILED'}, {seconds:.1f} s")
    return ExitCode.OK if passed else ExitCode.VERIFICATION


# `verify --precision`: how far other formats are from float64 on the paper's copper plate.

_METHOD = "cpu.tessellate"
_LEAST_POINTS = 8
_BOUNDS = [f">{bound:g} degC" for bound in ABSOLUTE] + [f">{bound:.0%}" for bound in RELATIVE]
_HEAD = f"{'format':<9} {'computed by':<15}" + "".join(f"{bound:>10}" for bound in _BOUNDS)


def add_precision_arguments(parser: argparse.ArgumentParser) -> None:
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


def run_precision(args: argparse.Namespace) -> int:
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
            print(
                _precision_row(row.name, row.computed_by, [*row.absolute, *row.relative]),
                flush=True,
            )

    seconds = time.perf_counter() - begin
    if args.json:
        print(json.dumps(_document(case, rows, seconds)))
    else:
        print("\n".join(_end_lines(case, rows, seconds)))
    return ExitCode.OK


def _solver(name: str, points: int) -> CaseSolver:
    (method,) = choose_methods(name)
    for precision in ("float64", "float32"):
        why_not = method.refusal(plate(points, 1, precision))
        if why_not is not None:
            msg = f"--method {name} does not compute {precision}: {why_not}"
            raise ConfigError(msg)
    return CaseSolver(method, find_machine())


def _half_solvers(points: int) -> list[CaseSolver]:
    """The methods of this machine that store float16; of those with the same bits one."""
    machine, stepwise, solvers = find_machine(), 0, []
    for method in choose_methods(None):
        if method.refusal(plate(points, 1, "float16")) is None:
            stepwise += method.exact
            if not method.exact or stepwise == 1:
                solvers.append(CaseSolver(method, machine))
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


def _precision_row(name: str, computed_by: str, shares: list[float]) -> str:
    return f"{name:<9} {computed_by:<15}" + "".join(f"{share:>10.1%}" for share in shares)


def _end_lines(case: PrecisionCase, rows: list[Deviation], seconds: float) -> list[str]:
    paper = _precision_row("float32", "paper, table 4", [share / 100 for share in PAPER_FLOAT32])
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


_COLUMNS = (
    f"{'case':<42} {'dim':>3}  {'method':<16} {'dtype':<8} {'error':>9} {'bound':>9}  {'order':>5} "
    " result"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of this verb."""
    parser.add_argument("--method", metavar="NAME", help="only this method, for example cpu.plain")
    parser.add_argument("--case", metavar="TEXT", help="only cases whose name contains this text")
    parser.add_argument(
        "--quick", action="store_true", help="only one case of a kind, in double precision"
    )
    add_precision_arguments(parser)
    add_suite_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Compute the cases and print what came out.

    Raises:
        ConfigError: no method or no case has the name asked for.
    """
    if is_asked_for(args):
        return run_precision(args)
    if args.suite is not None:
        return run_suite(args)

    known = quick_cases() if args.quick else all_cases()
    cases = tuple(case for case in known if args.case is None or args.case in case.name)
    if not cases:
        names = list(dict.fromkeys(map(_kind, (case.name for case in known))))
        msg = (
            f"--case {args.case}: none of {len(known)} cases has this in its name"
            f"{suggestion(args.case, names)}; they are called {listed(names, 'and')}"
        )
        raise ConfigError(msg)

    begin = time.perf_counter()
    if not args.json:
        print(_COLUMNS)
    results: list[VerificationResult] = []
    for result in verify(choose_methods(args.method), cases):
        results.append(result)
        if not args.json and (result.verdict != "pass" or not args.quiet):
            print(_row(result), flush=True)

    failed = sum(result.verdict == "FAIL" for result in results)
    computed = sum(result.verdict != "refused" for result in results)
    seconds = time.perf_counter() - begin
    passed = failed == 0 and computed > 0
    if args.json:
        facts = {
            "version": __version__,
            "passed": passed,
            "seconds": round(seconds, 3),
            "results": [result.as_json() for result in results],
        }
        print(json.dumps(facts))
    else:
        refused = f", {len(results) - computed} refused" if computed < len(results) else ""
        print(f"{computed - failed} of {computed} passed{refused}, {seconds:.1f} s")
    return ExitCode.OK if passed else ExitCode.VERIFICATION


def _kind(name: str) -> str:
    """Return the kind of a case, without its stencil and faces.

    >>> _kind("mode heat-1d, dirichlet"), _kind("two workers box-2d25p")
    ('mode', 'two workers')
    """
    words = name.partition(",")[0].split(" ")
    return " ".join(word for word in words if word not in catalogue())


def _row(result: VerificationResult) -> str:
    outcome = result.outcome
    order = "" if outcome is None or outcome.order is None else f"{outcome.order:.2f}"
    error, bound = ("", "") if outcome is None else (f"{outcome.error:.2e}", f"{outcome.bound:.2e}")
    row = (
        f"{result.case:<42} {result.ndim:>3}  {result.method:<16} {result.dtype:<8} {error:>9} "
        f"{bound:>9}  {order:>5}  "
    )
    return row + result.verdict + (f": {result.note}" if result.note else "")
