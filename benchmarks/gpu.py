"""The GPU benchmark with its studies: `python benchmarks/gpu.py --help`.

Without a flag it measures what `tetris-sim bench gpu` does beside what a user would write with
other libraries, and the multiply-adds that the GPU can make.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from benchmarks import gpu_breakdown, gpu_counters, gpu_sweeps  # noqa: E402
from benchmarks.gpu_limits import measure_gpu_limits  # noqa: E402
from benchmarks.gpu_peers import open_peers  # noqa: E402
from benchmarks.script import Study, run_script  # noqa: E402
from tetris_sim.bench.gpu import bench_gpu  # noqa: E402
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES  # noqa: E402


def measure_all(names: Sequence[str], **options: Any) -> dict[str, Any]:
    """What `tetris-sim bench gpu` does, with peers and all limits, as plain data."""
    return bench_gpu(names, **options, measure=measure_gpu_limits, peers=open_peers).as_json()


def main(arguments: Sequence[str]) -> int:
    """Measure."""
    usual = Study("The GPU methods beside peers and limits.", measure_all, STENCIL_NAMES)
    studies = {
        "breakdown": Study(
            "what each technique adds, as in figures of the papers",
            gpu_breakdown.bench_gpu_breakdown,
            gpu_breakdown.STENCILS,
        ),
        "sweep": Study("speed against size", gpu_sweeps.bench_gpu_sweep, gpu_sweeps.STENCILS),
        "counters": Study(
            "hardware counters of every kernel, by ncu",
            gpu_counters.bench_gpu_counters,
            gpu_counters.STENCILS,
        ),
    }
    return run_script("gpu", usual, studies, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
