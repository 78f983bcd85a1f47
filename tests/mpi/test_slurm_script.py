"""examples/slurm.sh puts a job back into the queue when its run was stopped with a checkpoint, and
only then.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.config_cases import long_plate

ROOT = Path(__file__).resolve().parents[2]
PLATE = long_plate(40000000) + "run: {max_walltime: 5 s}\n"


def run_job(folder: Path, launcher: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The script, with a launcher for srun and a file for the queue."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    program = f'"{sys.executable}" -m tetris_sim'
    scripts = {
        "srun": f'echo "$1 $SRUN_CPUS_PER_TASK" > srun.log; shift 2; exec "{launcher}" -n 2 {program} "$@"',
        "scontrol": 'echo "$@" >> queue.log',
    }
    for name, text in scripts.items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "SLURM_JOB_ID": "17",
        "SLURM_CPUS_PER_TASK": "1",
    }
    return subprocess.run(
        ["bash", str(ROOT / "examples" / "slurm.sh"), "plate.yaml", *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.mpi
def test_a_job_goes_back_into_the_queue_until_the_run_is_done(
    launcher: str, tmp_path: Path
) -> None:
    (tmp_path / "plate.yaml").write_text(PLATE)
    first = run_job(tmp_path, launcher)
    assert first.returncode == 0, first.stderr
    assert "wall-time limit" in first.stdout
    assert (tmp_path / "queue.log").read_text() == "requeue 17\n"
    assert (tmp_path / "srun.log").read_text() == "--kill-on-bad-exit=1 1\n"
    (checkpoint,) = (tmp_path / "out" / "checkpoints").glob("checkpoint_*.h5")
    step = int(checkpoint.stem.removeprefix("checkpoint_"))
    # On a loaded machine five seconds can be over before the first step.
    second = run_job(
        tmp_path, launcher, "--set", f"time.steps={step + 100}", "--set", "run.max_walltime=100 s"
    )
    assert second.returncode == 0, second.stderr
    assert f"Done: steps {step} to {step + 100}" in second.stdout
    assert (tmp_path / "queue.log").read_text() == "requeue 17\n"


@pytest.mark.mpi
def test_a_job_that_cannot_run_is_not_tried_again(launcher: str, tmp_path: Path) -> None:
    (tmp_path / "plate.yaml").write_text(PLATE.replace("copper", "unobtainium"))
    done = run_job(tmp_path, launcher)
    assert done.returncode == 2
    assert not (tmp_path / "queue.log").exists()
