"""Fill the disk under a running simulation, then make room and continue it; tells what happened as
JSON.

python full_disk_script.py FOLDER, where FOLDER is a disk of its own of a few MiB.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from tests.support.fault_runs import (  # noqa: E402
    checkpoint_steps,
    contents,
    start,
    tetris_here,
    wait_until,
    write_plate,
)
from tetris_sim.outputs.checkpoint import good_checkpoints  # noqa: E402

STEPS, OFTEN, CHECKPOINT = 400_000, 10_000, 20_000


def main(folder: Path) -> None:
    """Start, fill, look, make room, continue, compare."""
    config = write_plate(folder, steps=STEPS, often=OFTEN, checkpoint=CHECKPOINT, fields=STEPS)
    log, results, ballast = folder / "log", folder / "out", folder / "ballast"
    with log.open("w") as said:
        process = start(said, "run", config)
        wait_until(lambda: checkpoint_steps(results) != [], process, log)
        _fill(ballast)
        code = process.wait(120)
    told = {
        "code": code,
        "said": log.read_text(),
        "good": [str(path) for path in good_checkpoints(results / "checkpoints")],
    }
    ballast.unlink()
    resumed = tetris_here("run", config, "--resume", "auto")
    told |= {
        "resumed": resumed.returncode,
        "resumed_said": resumed.stderr,
        "unfinished": len(list(results.rglob("*.part"))),
    }
    whole = tetris_here("run", config, "--set", f"output.directory={folder / 'whole'}")
    told |= {"whole": whole.returncode, "same": _digest(results) == _digest(folder / "whole")}
    sys.stdout.write(json.dumps(told))


def _fill(ballast: Path) -> None:
    """Write until not another byte goes onto the disk."""
    descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    for size in (1 << 16, 1 << 12, 1):
        try:
            while os.write(descriptor, bytes(size)):
                pass
        except OSError:
            continue
    os.close(descriptor)


def _digest(results: Path) -> dict[str, str]:
    return {
        name: hashlib.sha256(content).hexdigest() for name, content in contents(results).items()
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
