"""The CPU benchmark with its studies: `python benchmarks/cpu.py --help`.

Without a flag it measures what `tetris-sim bench cpu` does, and with -o FILE.json also draws it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import cpu_breakdown, cpu_sweeps  # noqa: E402
from benchmarks.script import Study, run_script  # noqa: E402
from tetris_sim.bench.candidates import bench_cpu  # noqa: E402
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES  # noqa: E402


def measure_all(names: Sequence[str], **options: Any) -> dict[str, Any]:
    """What `tetris-sim bench cpu` does, as plain data."""
    return bench_cpu(names, **options).as_json()


def main(arguments: Sequence[str]) -> int:
    """Measure."""
    usual = Study("The CPU methods beside Numba loops.", measure_all, STENCIL_NAMES)
    studies = {
        "breakdown": Study(
            "what each technique adds, as in figures of the papers",
            cpu_breakdown.bench_breakdown,
            cpu_breakdown.STENCILS,
        ),
        "sweep": Study(
            "cost against size and threads", cpu_sweeps.bench_sweeps, cpu_sweeps.STENCILS
        ),
    }
    return run_script("cpu", usual, studies, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
