"""Give readers what nobody wrote: whatever comes, it is read or refused with a sentence, soon.

`python tests/faults/mutants.py 1000000 --jobs 16 --json docs/trust/mutants.json` tries a million
configurations, expressions, checkpoints, field files, initial fields and tuning files, each a good
one with random changes. Cases run in a child that is watched: one that takes longer than `LONGEST`
seconds, or kills its process, is a failure with a number that makes it again (`--again KIND SEED
CASE`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # beside the tests it is imported with what pytest puts on the path
    sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (0, 1, 2)]

import numpy as np
from config_mutants import changed_text, changed_tree, make, random_value, read, settle
from fault_runs import tetris_here, write_plate

from tetris_sim.checkpoint import open_checkpoint, seal
from tetris_sim.errors import CheckpointError, ExitCode, TetrisError
from tetris_sim.expressions import ExpressionError, compile_expression
from tetris_sim.outputs.series import open_fields
from tetris_sim.scheduler.tuning import tuned
from tetris_sim.slab import Slab

LONGEST = 20.0  # seconds of one case on a busy machine
SHARES = {
    "expression": 0.7,
    "tuning file": 0.2,
    "checkpoint": 0.07,
    "configuration": 0.02,
    "initial field": 0.006,
    "field file": 0.004,
}
_HDF5 = ("checkpoint", "field file", "initial field")
_MOST = 20  # failures that are told
SHAPE = (23, 31)  # of the plate that is run
FORMULAS = [
    "100*exp(-((x-0.02)**2+(y-0.01)**2)/1e-4)",
    "where(x < 0.3 and y >= -1, sin(pi*x), min(x, y, 2)) % 3",
    "clip(hypot(x, y), 0, 1e300)**0.5 // erf(-x) + not y",
    "(x - 1)*(x + 1)/y - 2**3**x",
]
SIGNS = [*"()+-*/%<>=.,eE0123456789xy", "**", "and ", "not ", "exp(", "where(", "9**9**9", "1e999"]
X, Y = np.linspace(-1.7, 2.3, 41), np.linspace(0.1, 3.0, 41)


@dataclass
class Tally:
    """What happened to one kind of input.

    Attributes:
        kind: key of `SHARES`.
        cases: inputs that were tried.
        longest: CPU time that one of them took [s].
        slow: those that took over a second of it.
        endless: those in which the HDF5 library did not come back, and was ended.
        failures: what went wrong, with the case.
    """

    kind: str
    cases: int = 0
    longest: float = 0.0
    slow: int = 0
    endless: int = 0
    failures: list[str] = field(default_factory=list)


# ---- inputs


@dataclass(frozen=True)
class Samples:
    """Good files that are changed.

    Attributes:
        folder: where changed ones are written.
        checkpoint: what is in a checkpoint.
        fields: in a file of fields at one time.
        index: in the index of all times.
        arrays: in initial fields, by suffix.
        key: of a choice of the tuner.
        choice: what is in its file.
    """

    folder: Path
    checkpoint: bytes
    fields: bytes
    index: bytes
    arrays: dict[str, bytes]
    key: Any
    choice: bytes


def make_samples(folder: Path) -> Samples:
    """Run something small and take what it writes."""
    config = write_plate(folder, steps=100, often=50, checkpoint=50, fields=50)
    assert tetris_here("run", config, "--overwrite").returncode == 0
    results = folder / "out"
    (fields,) = (results / "fields").glob("*50.h5")

    from PIL import Image

    values = np.random.default_rng(1).uniform(0, 90, SHAPE)
    np.save(folder / "u.npy", values)
    Image.fromarray(values.astype(np.uint8)).save(folder / "u.png")
    Image.fromarray(values.astype(np.uint8)).save(folder / "u.tiff")
    arrays = {path.suffix: path.read_bytes() for path in sorted(folder.glob("u.*"))}

    choice = tuned.Remembered("cpu.plain", {"steps_per_block": 4}, 1, 1e9, 0.0, tuned.now())
    key = ["a", "key"]
    tuned.remember(key, choice, [])  # type: ignore[arg-type]
    kept = tuned._path(key).read_bytes()  # type: ignore[arg-type]
    checkpoint = max((results / "checkpoints").glob("*.h5")).read_bytes()
    index = (results / "fields.h5").read_bytes()
    return Samples(results, checkpoint, fields.read_bytes(), index, arrays, key, kept)


def changed_bytes(good: bytes, rng: random.Random) -> bytes:
    """A good file with bits, bytes or whole pieces changed, lost or doubled."""
    content = bytearray(good)
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        if not content:
            break
        at = rng.randrange(len(content))
        # Where formats say what there is: at the beginning.
        at = rng.randrange(min(len(content), 2048)) if rng.random() < 0.3 else at
        size = rng.choice([1, 1, 2, 4, 8, 512])
        kind = rng.randrange(7)
        if kind == 0:
            content[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            content[at : at + size] = rng.randbytes(len(content[at : at + size]))
        elif kind == 2:
            fill = rng.choice([b"\0", b"\xff", b"\x7f"])
            content[at : at + size] = fill * len(content[at : at + size])
        elif kind == 3:
            del content[at : at + size]
        elif kind == 4:
            content[at:at] = content[: rng.randrange(1, 600)]
        elif kind == 5:
            number = rng.choice([0, 1, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1])
            content[at : at + 8] = number.to_bytes(8, "little")[: len(content[at : at + 8])]
        elif rng.random() < 0.3:
            del content[at:]
    return bytes(content)


# ---- readers: each raises what is a failure


def configuration(samples: Samples, rng: random.Random) -> None:
    """A tree, a text, or random data as a configuration, built."""
    choice = rng.random()
    settle(
        make(changed_tree(rng))
        if choice < 0.6
        else read(changed_text(rng))
        if choice < 0.8
        else make({key: random_value(rng) for key in ("grid", "model", "initial", "time")})
    )


def expression(samples: Samples, rng: random.Random) -> None:
    """A formula, computed if it is one."""
    text = rng.choice(FORMULAS)
    for _ in range(rng.choice([1, 2, 4, 12])):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice([*SIGNS, ""]) + text[at + rng.randrange(3) :]
    with contextlib.suppress(ExpressionError), np.errstate(all="ignore"):
        compile_expression(text, ["x", "y"])(x=X, y=Y)


def checkpoint(samples: Samples, rng: random.Random) -> None:
    """A checkpoint, damaged or forged; one in a hundred is continued."""
    path = samples.folder / "checkpoint_000000000100.h5"
    forged = rng.random() < 0.3
    content = samples.checkpoint
    if forged:
        # A seal that fits to what is changed below it.
        end = seal.read_seal(_written(path, content)).content_bytes
        path.write_bytes(changed_bytes(content[:end], rng))
        seal.append_seal(path, step=100, good=True)
    else:
        _written(path, changed_bytes(content, rng))
    with contextlib.suppress(CheckpointError), open_checkpoint(path) as opened:
        opened.read(tuple((0, n) for n in SHAPE))
    if rng.random() < 0.002:
        _verb("restart", path, "--set", "time.steps=101", "--set", f"output.directory={path}.d")
    elif rng.random() < 0.02:
        _verb("info", path)


def field_file(samples: Samples, rng: random.Random) -> None:
    """A file of fields or an index, read whole; some by verbs."""
    alone = rng.random() < 0.7
    good = samples.fields if alone else samples.index
    path = samples.folder / ("one.h5" if alone else "all.h5")
    _written(path, changed_bytes(good, rng))
    with contextlib.suppress(CheckpointError), open_fields(path) as series:
        box = tuple((0, n) for n in series.grid.shape)
        for record in range(len(series.steps)):
            series.read(record, 0, box)
    choice = rng.random()
    if choice < 0.05:
        _verb("info", path)
    elif choice < 0.06:
        _verb("plot", path, "-o", path.with_suffix(".png"))
    elif choice < 0.08:
        _verb("export", path, "-o", path.with_suffix(rng.choice([".csv", ".xdmf", ".vtkhdf"])))


def initial_field(samples: Samples, rng: random.Random) -> None:
    """An array, a picture or HDF5 as an initial field."""
    suffix, good = rng.choice([*samples.arrays.items(), (".h5", samples.fields)])
    path = _written(samples.folder / f"given{suffix}", changed_bytes(good, rng))
    tree = {
        "grid": {"shape": [31, 23], "size": ["62 mm", "23 mm"]},
        "model": {"type": "heat", "material": "copper"},
        "initial": {"type": "file", "path": str(path)},
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"cfl": 0.15, "steps": 10},
    }
    if suffix in (".png", ".tiff"):
        tree["initial"] |= {"range": [0, 90]}  # type: ignore[operator]
    with contextlib.suppress(TetrisError):
        problem = make(tree)().build()
        problem.initial(Slab.whole(problem.grid))


def tuning_file(samples: Samples, rng: random.Random) -> None:
    """What the tuner kept."""
    content = changed_bytes(samples.choice, rng)
    if rng.random() < 0.2:
        number = rng.choice(["-1", "1e999", "NaN", "9" * 400, "[" * 5000, '"x"', "null"])
        content = samples.choice.replace(
            rng.choice([b"1000000000.0", b" 4", b" 1,"]), number.encode()
        )
    _written(tuned._path(samples.key), content)
    tuned.recall(samples.key)


READERS: dict[str, Callable[[Samples, random.Random], None]] = {
    "expression": expression,
    "checkpoint": checkpoint,
    "tuning file": tuning_file,
    "field file": field_file,
    "initial field": initial_field,
    "configuration": configuration,
}


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _verb(*words: object) -> None:
    done = tetris_here(*words)
    assert done.returncode != ExitCode.INTERNAL, f"{words}: {done.stderr}"
    assert "Traceback" not in done.stderr, f"{words}: {done.stderr}"
    assert done.returncode == 0 or done.stderr.strip(), f"{words}: silent {done.returncode}"


# ---- the watch


def attempt(kind: str, seed: int, case: int, samples: Samples) -> None:
    """One case; raises what it should not."""
    READERS[kind](samples, random.Random(f"{seed} {kind} {case}"))


def _child(kind: str, seed: int, cases: range, samples: Samples, told: Any) -> None:
    """Try cases, telling before and after each."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    for case in cases:
        start = time.process_time()
        failure = ""
        told.send((case, None, ""))
        try:
            attempt(kind, seed, case, samples)
        except BaseException:  # noqa: BLE001  all that comes is told
            failure = traceback.format_exc()[-1500:]
        told.send((case, time.process_time() - start, failure))
    told.close()
    os._exit(0)


def watch(kind: str, cases: int, seed: int, folder: Path, longest: float = LONGEST) -> Tally:
    """Try so many cases of a kind in children, one after the other."""
    samples, tally, begin = make_samples(folder), Tally(kind), 0
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
                case, seconds, failure = ours.recv()
                if seconds is not None:
                    tally.cases += 1
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
            # A damaged heap of strings can make the HDF5 library follow it for ever, in C.
            if kind in _HDF5 and trouble.startswith("took"):
                tally.endless += 1
            else:
                tally.failures.append(f"{kind} {seed} {case}: {trouble}")
            begin = case + 1
        ours.close()
    return tally


def _watch(task: tuple[str, int, int, Path, float]) -> Tally:
    os.environ["TETRIS_SIM_CACHE_DIR"] = str(task[3] / "cache")
    return watch(*task)


def main(words: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=int)
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=list(SHARES))
    parser.add_argument("--again", nargs=3, metavar=("KIND", "SEED", "CASE"))
    parser.add_argument("--longest", type=float, default=LONGEST, help="seconds of one case")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(words)

    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tetris_sim_mutants_") as temporary:
        folder = Path(temporary)
        os.environ["TETRIS_SIM_CACHE_DIR"] = f"{temporary}/cache"
        if args.again:
            kind, seed, case = args.again
            attempt(kind, int(seed), int(case), make_samples(folder))
            return 0
        make_samples(folder / "warm")  # what is loaded here is not loaded in every child
        kinds = args.kind or list(SHARES)
        whole = sum(SHARES[kind] for kind in kinds)
        tasks = [
            (
                kind,
                round(args.cases * SHARES[kind] / whole / args.jobs),
                args.seed + job,
                folder / f"{kind} {job}".replace(" ", "_"),
                args.longest,
            )
            for kind in reversed(kinds)
            for job in range(args.jobs)
        ]
        if args.jobs == 1:
            found = [_watch(task) for task in tasks]
        else:
            fork = multiprocessing.get_context("fork")
            with ProcessPoolExecutor(args.jobs, mp_context=fork) as pool:
                found = list(pool.map(_watch, tasks))

    told = {
        "seed": args.seed,
        "cases": sum(it.cases for it in found),
        "seconds": round(time.monotonic() - start),
        "jobs": args.jobs,
        "date": time.strftime("%Y-%m-%d"),
        "kinds": [vars(_summed(kind, found)) for kind in kinds],
    }
    text = json.dumps(told, indent=1)
    sys.stdout.write(text + "\n")
    if args.json is not None:
        args.json.write_text(text + "\n")
    return int(any(it.failures for it in found))


def _summed(kind: str, found: list[Tally]) -> Tally:
    ours = [it for it in found if it.kind == kind]
    return Tally(
        kind,
        sum(it.cases for it in ours),
        round(max(it.longest for it in ours), 3),
        sum(it.slow for it in ours),
        sum(it.endless for it in ours),
        [text for it in ours for text in it.failures],
    )


if __name__ == "__main__":
    sys.exit(main())
