"""Give readers what nobody wrote: whatever comes, it is read or refused with a sentence, soon.

`python tests/support/mutants.py 1000000 --jobs 16 --json docs/trust/mutants.json` tries a million
configurations, expressions, checkpoints, field files, initial fields and tuning files, each a good
one with random changes. Cases run in a child that is watched: one that takes longer than `LONGEST`
seconds, or kills its process, is a failure with a number that makes it again (`--again KIND SEED
CASE`).
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # beside the tests it is imported with what pytest puts on the path
    sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from tests.support.jobs import arguments, in_jobs, tell
from tests.support.mutant_inputs import READERS, Samples, make_samples
from tetris_sim.support import hdf5

LONGEST = 20.0  # seconds of one case on a busy machine
# What costs little comes first, in case the time does not suffice for all.
SHARES = {
    "expression": 0.7,
    "tuning file": 0.2,
    "checkpoint": 0.07,
    "initial field": 0.006,
    "field file": 0.004,
    "configuration": 0.02,
}
_PORTIONS = 24  # of a kind for each job: they end at about the same time
_MOST = 20  # failures that are told


@dataclass
class Tally:
    """What happened to one kind of input.

    Attributes:
        kind: key of `SHARES`.
        cases: inputs that were tried.
        seconds: wall time of all of them together [s].
        longest: CPU time that one of them took [s].
        slow: those that took over a second of it.
        deadly: those that the HDF5 library does not come back from, refused with a sentence.
        failures: what went wrong, with the case.
    """

    kind: str
    cases: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    slow: int = 0
    deadly: int = 0
    failures: list[str] = field(default_factory=list)


# ---- the watch


def attempt(kind: str, seed: int, case: int, samples: Samples) -> str | None:
    """One case: with which sentence it was refused, if it was; raises what it should not."""
    return READERS[kind](samples, random.Random(f"{seed} {kind} {case}"))


def _child(kind: str, seed: int, cases: range, samples: Samples, told: Any) -> None:
    """Try cases, telling before and after each."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    hdf5._COMPUTING = 0.5  # seconds of a deadly file
    for case in cases:
        start = time.process_time()
        failure, refused = "", None
        told.send((case, None, False, ""))
        try:
            refused = attempt(kind, seed, case, samples)
        except BaseException:  # noqa: BLE001  all that comes is told
            failure = traceback.format_exc()[-1500:]
        seconds = time.process_time() - start
        told.send((case, seconds, "the HDF5 library " in (refused or ""), failure))
    told.close()
    os._exit(0)


def watch(kind: str, cases: int, seed: int, samples: Samples, longest: float = LONGEST) -> Tally:
    """Try so many cases of a kind in children, one after the other."""
    tally, begin, start = Tally(kind), 0, time.monotonic()
    fork = multiprocessing.get_context("fork")
    while begin < cases:
        ours, theirs = fork.Pipe(duplex=False)
        # Not for ever: what leaks in a thousand refused files is not what is looked for.
        batch = range(begin, min(begin + 5000, cases))
        child = fork.Process(target=_child, args=(kind, seed, batch, samples, theirs))
        child.start()
        theirs.close()
        case, begin = begin, batch.stop
        trouble = ""
        try:
            while ours.poll(longest):
                case, seconds, deadly, failure = ours.recv()
                if seconds is not None:
                    tally.cases += 1
                    tally.deadly += deadly
                    tally.longest = max(tally.longest, seconds)
                    tally.slow += seconds > 1
                    if failure and len(tally.failures) < _MOST:
                        tally.failures.append(f"{kind} {seed} {case}: {failure}")
            trouble = f"took more than {longest} s"
        except EOFError:
            child.join()
            trouble = "" if child.exitcode == 0 else f"ended the process with {child.exitcode}"
        if trouble:
            child.kill()
            child.join()
            tally.cases += 1
            tally.failures.append(f"{kind} {seed} {case}: {trouble}")
            begin = case + 1
        ours.close()
    tally.seconds = time.monotonic() - start
    return tally


def _watch(task: tuple[str, int, int, Samples, float]) -> Tally:
    folder = task[3].folder
    folder.mkdir()
    os.environ["TETRIS_SIM_CACHE_DIR"] = str(folder / "cache")
    return watch(*task)


def main(words: list[str] | None = None) -> int:
    """The command line."""
    parser = arguments(__doc__ or "", "cases", SHARES)
    parser.add_argument("--again", nargs=3, metavar=("KIND", "SEED", "CASE"))
    parser.add_argument("--longest", type=float, default=LONGEST, help="seconds of one case")
    args = parser.parse_args(words)

    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tetris_sim_mutants_") as temporary:
        folder = Path(temporary)
        os.environ["TETRIS_SIM_CACHE_DIR"] = f"{temporary}/cache"
        if args.again:
            kind, seed, case = args.again
            attempt(kind, int(seed), int(case), make_samples(folder))
            return 0
        samples = make_samples(folder / "good")  # and what is loaded here is not loaded in a child
        kinds, portions = args.kind or list(SHARES), args.jobs * _PORTIONS
        whole = sum(SHARES[kind] for kind in kinds)
        tasks = [
            (
                kind,
                -(-round(args.cases * SHARES[kind] / whole) // portions),
                args.seed + portion,
                replace(samples, folder=folder / f"{kind} {portion}".replace(" ", "_")),
                args.longest,
            )
            for kind in kinds
            for portion in range(portions)
        ]

        def told(found: list[Tally]) -> None:
            tell(args, "cases", _summed(found), start, ended=False)

        found = in_jobs(_watch, tasks, args, told)
    return tell(args, "cases", _summed(found), start)


def _summed(found: list[Tally]) -> list[Tally]:
    return [
        Tally(
            kind,
            sum(it.cases for it in ours),
            round(sum(it.seconds for it in ours), 1),
            round(max(it.longest for it in ours), 3),
            sum(it.slow for it in ours),
            sum(it.deadly for it in ours),
            [text for it in ours for text in it.failures],
        )
        for kind in SHARES
        if (ours := [it for it in found if it.kind == kind])
    ]


if __name__ == "__main__":
    sys.exit(main())
