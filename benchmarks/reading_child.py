"""What the child costs that reads HDF5 files first: seconds to open a file, with and without it.

`python -m tests.benchmarks.reading_child` writes JSON: medians of turns with and without it. A
process that holds more memory may take longer to be copied.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import numpy as np

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from tests.support.mutant_inputs import make_samples
from tetris_sim.outputs.checkpoint import open_checkpoint
from tetris_sim.outputs.series import open_fields
from tetris_sim.support import hdf5

_TURNS = 40
_HELD = (0, 1 << 30, 4 << 30)  # bytes


def _seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _open_checkpoint(path: Path) -> None:
    hdf5._survived.clear()  # it is looked at once for each state of a file
    open_checkpoint(path).close()


def _open_fields(path: Path) -> None:
    hdf5._survived.clear()
    with open_fields(path) as series:
        series.read(0, 0, tuple((0, n) for n in series.grid.shape))


@contextlib.contextmanager
def _no_child() -> Iterator[None]:
    saved, fields = "tetris_sim.outputs.checkpoint.file", "tetris_sim.outputs.series"
    with mock.patch(f"{saved}.refuse_outside"), mock.patch(f"{fields}.refuse_outside"):
        yield


def main() -> None:
    """Measure, and write what came out."""
    with tempfile.TemporaryDirectory() as folder:
        samples = make_samples(Path(folder))
        saved = max((samples.folder / "checkpoints").glob("*.h5"))
        cases = {
            "checkpoint": lambda: _open_checkpoint(saved),
            "fields": lambda: _open_fields(samples.folder / "fields.h5"),
        }

        rows = []
        for held in _HELD:
            memory = np.ones(held, dtype=np.uint8)
            for name, work in cases.items():
                times: dict[bool, list[float]] = {True: [], False: []}
                for turn in range(2 * _TURNS):
                    alone = bool(turn % 2)
                    with _no_child() if alone else contextlib.nullcontext():
                        times[alone].append(_seconds(work))
                rows.append(
                    {
                        "file": name,
                        "held": int(memory.nbytes),
                        "with_s": statistics.median(times[False]),
                        "without_s": statistics.median(times[True]),
                    }
                )
            del memory
    json.dump({"turns": _TURNS, "date": time.strftime("%Y-%m-%d"), "rows": rows}, sys.stdout)


if __name__ == "__main__":
    main()
