from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.fault_runs import (
    assert_same_results,
    checkpoint_steps,
    tetris,
    tetris_here,
    write_plate,
)
from tetris_sim.outputs.checkpoint import good_checkpoints

SCRIPT = Path(__file__).parents[1] / "support" / "full_disk_script.py"
LARGER = ("--set", "grid.shape=[93, 69]")  # a checkpoint of some 65 KB, beside tables of a few KB


def _limit(size: int) -> Callable[[], None]:
    """What a process does before it becomes the program, so that no file of it exceeds `size`
    bytes.
    """
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_checkpoints_that_cannot_be_written_end_a_run_only_at_its_end(tmp_path: Path) -> None:
    config = write_plate(tmp_path, steps=600, often=60, checkpoint=300, two="60 steps")
    no_fields = (*LARGER, "--set", "output.fields=null")
    first = tetris_here("run", config, *no_fields)
    assert first.returncode == 0, first.stderr
    last = tmp_path / "out" / "checkpoints" / "checkpoint_000000000600.h5"

    more = ("--resume", "auto", "--set", "time.steps=1800")
    limited = tetris("run", config, *no_fields, *more, preexec_fn=_limit(50_000))
    assert limited.returncode == 3, limited.stderr
    assert "Traceback" not in limited.stderr
    assert "The run goes on without this checkpoint" in limited.stderr
    assert "checkpoint_000000001800.h5 cannot be written" in limited.stderr
    assert f"The last good checkpoint is {last}." in limited.stderr
    assert good_checkpoints(last.parent)[0] == last
    assert not list(tmp_path.rglob("*.part"))
    # It did go on: the tables are complete, only the state is lost.
    assert (tmp_path / "out" / "statistics.csv").read_text().splitlines()[-1].startswith("1800,")

    resumed = tetris_here("run", config, *no_fields, *more)
    assert resumed.returncode == 0, resumed.stderr
    assert f"Continuing from {last}" in resumed.stderr
    config = write_plate(tmp_path / "whole", steps=1800, often=60, checkpoint=300, two="60 steps")
    assert tetris_here("run", config, *no_fields).returncode == 0
    assert_same_results(tmp_path / "out", tmp_path / "whole" / "out", fields=False)


def test_an_output_that_cannot_be_written_ends_the_run_and_spares_what_was_there(
    tmp_path: Path,
) -> None:
    config = write_plate(tmp_path, steps=300, often=60, checkpoint=300, fields=300, two="60 steps")
    assert tetris_here("run", config, *LARGER).returncode == 0
    more = (*LARGER, "--resume", "auto", "--set", "time.steps=900")
    limited = tetris("run", config, *more, preexec_fn=_limit(50_000))
    assert limited.returncode == 3, limited.stderr
    assert "Traceback" not in limited.stderr
    assert "fields_000000000600.h5 cannot be written" in limited.stderr
    assert checkpoint_steps(tmp_path / "out") == [300]

    assert tetris_here("run", config, *more).returncode == 0
    config = write_plate(
        tmp_path / "whole", steps=900, often=60, checkpoint=300, fields=300, two="60 steps"
    )
    assert tetris_here("run", config, *LARGER).returncode == 0
    assert_same_results(tmp_path / "out", tmp_path / "whole" / "out")


def test_a_run_whose_disk_becomes_full_goes_on_when_there_is_room_again(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed, so no small disk can be made (install util-linux)")
    command = [
        unshare,
        "-rm",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=8m none "{tmp_path}" && exec "$@"',
        "sh",
    ]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system does not let a user mount a small disk (unshare -rm)")
    done = subprocess.run(
        [*command, sys.executable, str(SCRIPT), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["code"] == 3, told["said"]
    assert "disk full" in told["said"]
    assert "Traceback" not in told["said"]
    assert told["good"], told["said"]
    assert told["resumed"] == 0, told["resumed_said"]
    assert f"Continuing from {told['good'][0]}" in told["resumed_said"]
    assert (told["unfinished"], told["whole"], told["same"]) == (0, 0, True)
