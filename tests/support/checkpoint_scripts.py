"""Programs that the fault tests start in processes of their own: they are killed, or their disk is
full.

python checkpoint_scripts.py NAME FOLDER
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np

from tetris_sim.errors import UnsupportedError
from tetris_sim.model.boundary import Boundary, Periodic
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field, Problem, StateVariable, Total
from tetris_sim.model.stencil import identity
from tetris_sim.outputs.checkpoint import (
    RunState,
    find_checkpoint,
    good_checkpoints,
    write_checkpoint,
)
from tetris_sim.outputs.checkpoint import directory as checkpoint_module

_SHAPE = (401, 257)


def _problem() -> Problem:
    return Problem(
        grid=Grid(_SHAPE, (1.0, 1.0), (0.5, 0.5)),
        stencil=identity(2),
        boundary=Boundary.everywhere(Periodic(), 2),
        initial=lambda slab: np.zeros((1, *slab.shape)),
        dt=1.0,
        steps=1 << 40,
        dtype=np.dtype(np.float64),
        variables=(StateVariable("u", "1", "u", Total("integral", "1", 1.0)),),
    )


def _field(step: int) -> Field:
    return np.random.default_rng(step).standard_normal((1, *_SHAPE))


def _write(folder: Path, problem: Problem, step: int) -> None:
    u = _field(step)
    state = RunState(step, problem.dt, problem.steps, "run", "config: 1\n", "digest")
    write_checkpoint(
        folder, state, problem, lambda box: u[:, slice(*box[0]), slice(*box[1])], keep=2
    )


def _found(folder: Path) -> int:
    """Step of the newest good checkpoint, whose values are compared; -1 if there is none."""
    found, _ = find_checkpoint(folder)
    if found is None:
        return -1
    with found:
        u = found.read(tuple((0, n) for n in _SHAPE))
        if not np.array_equal(u.view(np.uint64), _field(found.state.step).view(np.uint64)):
            return -2
        return found.state.step


def kill(folder: Path) -> None:
    """Kill a writer at random moments, 30 times, each going on where the one before ended."""
    problem, rng, rounds = _problem(), random.Random(4), []
    reported = folder / "reported"
    _write(folder, problem, 1)
    start = time.perf_counter()
    _write(folder, problem, 2)
    once = time.perf_counter() - start
    for _ in range(30):
        begin = _found(folder)
        child = os.fork()
        if child == 0:
            with reported.open("w") as report:
                for step in range(begin + 1, begin + 1000):
                    _write(folder, problem, step)
                    report.write(f"{step}\n")
                    report.flush()
            os._exit(0)
        time.sleep(rng.uniform(0.1, 5) * once)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines = reported.read_text().split() if reported.exists() else []
        parts = len(list(folder.glob("*.part")))
        acknowledged = int(lines[-1]) if lines else begin
        rounds.append(
            {"begin": begin, "acknowledged": acknowledged, "found": _found(folder), "parts": parts}
        )
        reported.unlink(missing_ok=True)
        assert not list(folder.glob("*.part"))
    sys.stdout.write(json.dumps(rounds))


def limit(folder: Path) -> None:
    """Write with ever larger limits on the size of a file (`ulimit -f`) until it is enough."""
    problem = _problem()
    _write(folder, problem, 1)
    size = next(folder.glob("*.h5")).stat().st_size
    limits = sorted(
        {0, 1, 512, 4096, *range(0, size, size // 23), *range(size - 600, size, 29), size - 1, size}
    )
    tries = []
    for bytes_allowed in limits:
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_allowed, resource.RLIM_INFINITY))
        said = "written"
        try:
            _write(folder, problem, 2)
        except UnsupportedError as error:
            said = str(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        names = sorted(path.name for path in folder.iterdir())
        tries.append(
            {
                "limit": bytes_allowed,
                "size": size,
                "said": said,
                "names": names,
                "found": _found(folder),
            }
        )
    sys.stdout.write(json.dumps(tries))


def full(folder: Path) -> None:
    """Fill a disk of 4 MiB, on which FOLDER is; first without looking at what is free."""
    problem, tries = _problem(), []
    ballast = folder / "ballast"
    _write(folder, problem, 1)
    for look, spare in (
        (False, 10_000),
        (False, 700_000),
        (False, 815_000),
        (True, 700_000),
        (True, 3_000_000),
    ):
        checkpoint_module._OVERHEAD = 1 << 20 if look else -(1 << 40)
        ballast.write_bytes(b"")
        ballast.write_bytes(
            bytes(max(0, os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize - spare))
        )
        said = "written"
        try:
            _write(folder, problem, 2)
        except UnsupportedError as error:
            said = str(error)
        names = [path.name for path in good_checkpoints(folder)]
        unfinished = len(list(folder.glob("*.part")))
        tries.append(
            {
                "look": look,
                "said": said,
                "names": names,
                "unfinished": unfinished,
                "found": _found(folder),
            }
        )
    sys.stdout.write(json.dumps(tries))


if __name__ == "__main__":
    {"kill": kill, "limit": limit, "full": full}[sys.argv[1]](Path(sys.argv[2]))
