"""What the case study takes beside computing: python benchmarks/case_overhead.py FOLDER OUT.json.

A tenth of the steps of examples/copper_plate_full.yaml on a GPU with as many fields as the whole
has, since what comes before, between and after the steps does not depend on their number: once with
nothing tuned or compiled before, and twice again. Two minutes on an H200 with 16 cores.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PLATE = Path(__file__).parents[1] / "examples" / "copper_plate_full.yaml"
STEPS, PART = 3_800_000, 10
CHANGES = (
    "compute.devices=cpu+gpu",
    "output.fields.compression=none",
    f"time.steps={STEPS // PART}",
    f"output.fields.every={STEPS // PART // 4} steps",
)


def main(folder: Path, out: Path) -> None:
    """All three runs; prints and writes what was found."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["TETRIS_SIM_CACHE_DIR"] = str(folder / "cache")
    shutil.rmtree(folder / "cache", ignore_errors=True)

    runs = {name: run(folder / "results") for name in ("fresh", "again", "once more")}
    for name, found in runs.items():
        print(name, {key: round(value, 2) for key, value in found.items()}, flush=True)
    record = {"steps": STEPS // PART, "of": STEPS, "runs": runs}
    out.write_text(json.dumps(record, separators=(",", ":")) + "\n", encoding="utf-8")


def run(results: Path) -> dict[str, Any]:
    """Seconds of the process and of its phases, and its share beside computing all steps."""
    shutil.rmtree(results, ignore_errors=True)  # not by the run, which would count it
    words = [sys.executable, "-m", "tetris_sim", "run", str(PLATE), "-q", "--no-progress"]
    for change in (*CHANGES, f"output.directory={results}"):
        words += ["--set", change]
    begun = time.perf_counter()
    subprocess.run(words, check=True)
    seconds = time.perf_counter() - begun

    report = json.loads((results / "report.json").read_text(encoding="utf-8"))
    compute = report["phases_s"]["compute"]
    phases = {f"{name} s": value for name, value in report["phases_s"].items()}
    over = (seconds - compute) / (PART * compute)
    return {"process s": seconds, "over": over, **phases}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
