"""Inputs that nobody wrote: good files with random changes, and what reads them."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.config_mutants import (
    changed_text,
    changed_tree,
    make,
    random_value,
    read,
    settle,
)
from tests.support.fault_runs import tetris_here, write_plate
from tetris_sim.errors import ExitCode, TetrisError
from tetris_sim.model.formula import ExpressionError, compile_expression
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.checkpoint import open_checkpoint, seal
from tetris_sim.outputs.series import open_fields
from tetris_sim.scheduler.tuning import tuned

SHAPE = (23, 31)  # of the plate that is run
FORMULAS = [
    "100*exp(-((x-0.02)**2+(y-0.01)**2)/1e-4)",
    "where(x < 0.3 and y >= -1, sin(pi*x), min(x, y, 2)) % 3",
    "clip(hypot(x, y), 0, 1e300)**0.5 // erf(-x) + not y",
    "(x - 1)*(x + 1)/y - 2**3**x",
]
SIGNS = [*"()+-*/%<>=.,eE0123456789xy", "**", "and ", "not ", "exp(", "where(", "9**9**9", "1e999"]
X, Y = np.linspace(-1.7, 2.3, 41), np.linspace(0.1, 3.0, 41)


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
    assert tuned.recall(key) == choice  # type: ignore[arg-type]
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


def checkpoint(samples: Samples, rng: random.Random) -> str | None:
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
    refused = _refused(lambda: _read_checkpoint(path))
    if rng.random() < 0.002:
        _verb("restart", path, "--set", "time.steps=101", "--set", f"output.directory={path}.d")
    elif rng.random() < 0.02:
        _verb("info", path)
    return refused


def field_file(samples: Samples, rng: random.Random) -> str | None:
    """A file of fields or an index, read whole; some by verbs."""
    alone = rng.random() < 0.7
    good = samples.fields if alone else samples.index
    path = samples.folder / ("one.h5" if alone else "all.h5")
    _written(path, changed_bytes(good, rng))
    refused = _refused(lambda: _read_fields(path))
    choice = rng.random()
    if choice < 0.05:
        _verb("info", path)
    elif choice < 0.06:
        _verb("plot", path, "-o", path.with_suffix(".png"))
    elif choice < 0.08:
        _verb("export", path, "-o", path.with_suffix(rng.choice([".csv", ".xdmf", ".vtkhdf"])))
    return refused


def initial_field(samples: Samples, rng: random.Random) -> str | None:
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

    def begin() -> None:
        problem = make(tree)().build()
        problem.initial(Slab.whole(problem.grid))

    return _refused(begin)


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


READERS: dict[str, Callable[[Samples, random.Random], str | None]] = {
    "expression": expression,
    "checkpoint": checkpoint,
    "tuning file": tuning_file,
    "field file": field_file,
    "initial field": initial_field,
    "configuration": configuration,
}


def _refused(work: Callable[[], None]) -> str | None:
    try:
        work()
    except TetrisError as error:
        return str(error)
    return None


def _read_checkpoint(path: Path) -> None:
    with open_checkpoint(path) as opened:
        opened.read(tuple((0, n) for n in SHAPE))


def _read_fields(path: Path) -> None:
    with open_fields(path) as series:
        box = tuple((0, n) for n in series.grid.shape)
        for record in range(len(series.steps)):
            series.read(record, 0, box)


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _verb(*words: object) -> None:
    done = tetris_here(*words)
    assert done.returncode != ExitCode.INTERNAL, f"{words}: {done.stderr}"
    assert "Traceback" not in done.stderr, f"{words}: {done.stderr}"
    assert done.returncode == 0 or done.stderr.strip(), f"{words}: silent {done.returncode}"
