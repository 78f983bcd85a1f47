"""`verify`: check this machine's answers against analytic solutions, or report on precision."""

from __future__ import annotations

import argparse
import json
import time

from tetris_sim.commands import verify_precision, verify_standards
from tetris_sim.errors import ConfigError, ExitCode
from tetris_sim.model.stencils.catalogue import catalogue
from tetris_sim.support.wording import listed, suggestion
from tetris_sim.verification.suite import Result, all_cases, choose_methods, quick_cases, verify
from tetris_sim.version import __version__

HELP = "check this machine's answers against analytic solutions"

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
    verify_precision.add_arguments(parser)
    verify_standards.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Compute the cases and print what came out.

    Raises:
        ConfigError: no method or no case has the name asked for.
    """
    if verify_precision.is_asked_for(args):
        return verify_precision.run(args)
    if args.suite is not None:
        return verify_standards.run(args)

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
    results: list[Result] = []
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
    """What a case is about, without its stencil and faces.

    >>> _kind("mode heat-1d, dirichlet"), _kind("two workers box-2d25p")
    ('mode', 'two workers')
    """
    words = name.partition(",")[0].split(" ")
    return " ".join(word for word in words if word not in catalogue())


def _row(result: Result) -> str:
    outcome = result.outcome
    order = "" if outcome is None or outcome.order is None else f"{outcome.order:.2f}"
    error, bound = ("", "") if outcome is None else (f"{outcome.error:.2e}", f"{outcome.bound:.2e}")
    row = (
        f"{result.case:<42} {result.ndim:>3}  {result.method:<16} {result.dtype:<8} {error:>9} "
        f"{bound:>9}  {order:>5}  "
    )
    return row + result.verdict + (f": {result.note}" if result.note else "")
