"""Small runs for the fault tests, started as a user would start them, and what is compared
afterwards.
"""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import h5py
import numpy as np

from tetris_sim.__main__ import main

CHECKPOINTS = "checkpoints"
_LONG = 120.0  # seconds; never waited for unless the test fails

PLATE = """
schema: 1
title: Small plate
grid: {{shape: [31, 23], size: [62 mm, 23 mm]}}
model: {{type: heat, material: copper}}
initial: {{type: expression, expression: "100*exp(-((x-0.02)**2+(y-0.01)**2)/1e-4)"}}
boundaries: {{"*": {{type: neumann, flux: 100}}, x-: {{type: dirichlet, value: 50}}, y: {{type: periodic}}}}
time: {{cfl: 0.15, steps: {steps}}}
compute: {{method: cpu.plain, threads: 1}}
output:
  directory: {directory}
  fields: {{every: {fields} steps}}
  statistics: {{every: {often} steps}}
  probes: [{{at: [10 mm, 20 mm], every: {often} steps, name: one}}, {{at: [61 mm, 1 mm], every: {two}, name: two}}]
  pictures: {pictures}
checkpoint: {{every: {checkpoint} steps, keep: 2}}
"""


def write_plate(
    folder: Path,
    *,
    steps: int,
    often: int,
    checkpoint: int,
    fields: int | None = None,
    pictures: bool = False,
    two: str = "0.1 s",
) -> Path:
    """A configuration of a plate with every kind of output, in `folder`; its results go to
    `folder`/out.

    Args:
        folder: made if it is not there.
        steps: of the run.
        often: steps between two records of statistics and of the first probe.
        checkpoint: steps between two checkpoints.
        fields: steps between two fields; ten times `often` if not given.
        pictures: whether there are any.
        two: interval of the second probe.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "plate.yaml"
    path.write_text(
        PLATE.format(
            steps=steps,
            often=often,
            checkpoint=checkpoint,
            fields=fields or 10 * often,
            pictures=str(pictures).lower(),
            directory=folder / "out",
            two=two,
        )
    )
    return path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "tetris_sim", *map(str, arguments)]


def tetris(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=_LONG, check=False, **options
    )


def tetris_here(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the program to its end inside this process, which saves the time to start another."""
    out, err = io.StringIO(), io.StringIO()
    # As numpy is outside of tests: an overflow is what some runs are about.
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        np.errstate(all="ignore"),
    ):
        code = main([str(argument) for argument in arguments])
    return subprocess.CompletedProcess(
        list(map(str, arguments)), code, out.getvalue(), err.getvalue()
    )


def start(log: IO[str], *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Start the program; what it says goes to `log`."""
    return subprocess.Popen(command(*arguments), stdout=log, stderr=log, text=True, **options)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str], log: Path) -> None:
    """Return when `condition` holds; fail when the process ends before that."""
    deadline = time.monotonic() + _LONG
    while not condition():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.002)


def checkpoint_steps(results: Path) -> list[int]:
    """Steps that have a file in the folder of checkpoints, ascending."""
    return sorted(
        int(path.stem.removeprefix("checkpoint_"))
        for path in (results / CHECKPOINTS).glob("checkpoint_*.h5")
    )


def contents(results: Path) -> dict[str, bytes]:
    """Everything a run leaves behind that must not depend on how often it was interrupted.

    Text files and pictures as they are; of HDF5 files every dataset of numbers, bit for bit. What
    tells one run from another (run number, wall time, date) is left out, and so is how checkpoints
    lie in parts, which a plan decides by measured speed: they are read through the checkpoint.
    """
    found: dict[str, bytes] = {}
    for path in sorted(results.rglob("*")):
        name = str(path.relative_to(results))
        if path.parent.name.startswith("parts_"):
            continue
        if path.suffix == ".h5":
            with h5py.File(path) as file:
                file.visititems(
                    lambda key, item, name=name: found.update(
                        {f"{name}:{key}": np.asarray(item[()]).tobytes()}
                        if isinstance(item, h5py.Dataset) and item.dtype.kind in "iuf"
                        else {}
                    )
                )
        elif path.is_file() and path.name not in (
            "resolved.yaml",
            "report.json",
            "report.txt",
            ".lock",
        ):
            found[name] = path.read_bytes()
    return found


def assert_same_results(
    results: Path, expected: Path, *, fields: bool = True, pictures: bool = True
) -> None:
    ours, theirs = contents(results), contents(expected)
    if not pictures:
        theirs = {name: content for name, content in theirs.items() if not name.endswith(".png")}
    assert not ours.keys() ^ theirs.keys(), (
        f"only here {ours.keys() - theirs.keys()}, not {theirs.keys() - ours.keys()}"
    )
    different = [name for name in ours if ours[name] != theirs[name]]
    assert not different, f"not the same: {different}"
    assert any(name.endswith(":fields/temperature") for name in ours)  # of a checkpoint
    assert any(name.startswith("fields/") for name in ours) == fields
    assert "probes/one.csv" in ours
    assert "statistics.csv" in ours
