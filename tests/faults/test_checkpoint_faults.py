from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "support" / "checkpoint_scripts.py"
OLD, NEW = "checkpoint_000000000001.h5", "checkpoint_000000000002.h5"


def _run(*command: str) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, (
        done.stderr
    )  # also: no crash of the HDF5 library at the end of the process
    return json.loads(done.stdout)


def test_killing_a_writer_at_any_moment_leaves_a_good_checkpoint(tmp_path: Path) -> None:
    rounds = _run(sys.executable, str(SCRIPT), "kill", str(tmp_path))
    assert len(rounds) == 30
    for each in rounds:
        # At most one more than the writer had told of: it was killed between the rename and the
        # telling.
        assert each["found"] - each["acknowledged"] in (0, 1), each
    assert (
        sum(each["parts"] for each in rounds) >= 5
    )  # it really was killed while writing, not always in between
    assert rounds[-1]["found"] > 10


def test_a_limit_on_the_size_of_files_costs_only_the_new_checkpoint(tmp_path: Path) -> None:
    *too_small, enough = _run(sys.executable, str(SCRIPT), "limit", str(tmp_path))
    assert len(too_small) > 40
    for each in too_small:
        assert NEW in each["said"], each
        assert "ulimit -f" in each["said"], each
        assert f"The last good checkpoint is {tmp_path / OLD}." in each["said"], each
        assert (each["names"], each["found"]) == ([OLD], 1), each
    assert (enough["said"], enough["names"], enough["found"]) == ("written", [OLD, NEW], 2)


@pytest.fixture
def small_disk(tmp_path: Path) -> list[str]:
    """A command that runs another in a user namespace of its own, where `tmp_path` is a disk of 4
    MiB.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed, so no small disk can be made (install util-linux)")
    command = [
        unshare,
        "-rm",
        "sh",
        "-c",
        f'mount -t tmpfs -o size=4m none "{tmp_path}" && exec "$@"',
        "sh",
    ]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip("this system does not let a user mount a small disk (unshare -rm)")
    return command


def test_a_full_disk_costs_only_the_new_checkpoint(small_disk: list[str], tmp_path: Path) -> None:
    *tries, enough = _run(*small_disk, sys.executable, str(SCRIPT), "full", str(tmp_path))
    assert [each["look"] for each in tries] == [False, False, False, True]
    for each in tries:
        assert ("are free there" if each["look"] else "disk full") in each["said"], each
        assert f"The last good checkpoint is {tmp_path / OLD}." in each["said"], each
        assert (each["names"], each["unfinished"], each["found"]) == ([OLD], 0, 1), each
    assert (enough["said"], enough["names"], enough["found"]) == ("written", [NEW, OLD], 2)
