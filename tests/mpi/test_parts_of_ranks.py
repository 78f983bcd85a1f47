"""Checkpoints of runs on ranks in parts, one of each rank."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.launched_runs import config_of, launch_on
from tetris_sim.errors import CheckpointError
from tetris_sim.outputs.checkpoint import open_checkpoint
from tetris_sim.simulation.launch import launch


def test_each_rank_writes_its_own_part_and_the_whole_reads_as_one(tmp_path: Path) -> None:
    directory, alone = tmp_path / "out", tmp_path / "alone"
    launch_on(1, alone)
    launch_on(3, directory, "checkpoint.per_rank=true")
    folder = directory / "checkpoints"
    assert sorted(path.name for path in folder.glob("*")) == [
        "checkpoint_000000000040.h5",
        "checkpoint_000000000060.h5",
        "parts_000000000040",
        "parts_000000000060",
    ]
    assert [path.name for path in sorted((folder / "parts_000000000060").iterdir())] == [
        f"part_{k:06d}.h5" for k in range(3)
    ]
    with (
        open_checkpoint(folder / "checkpoint_000000000060.h5") as divided,
        open_checkpoint(alone / "checkpoints" / "checkpoint_000000000060.h5") as whole,
    ):
        everything = tuple((0, n) for n in whole.grid.shape)
        np.testing.assert_array_equal(divided.read(everything), whole.read(everything))
        assert divided.grid == whole.grid
        assert divided.variables == whole.variables
        box = ((5, 19), (3, 30))
        np.testing.assert_array_equal(divided.read(box), whole.read(box))


@pytest.mark.parametrize("damage", ["missing", "flipped", "of another checkpoint"])
def test_a_part_that_is_damaged_makes_the_run_go_on_from_the_checkpoint_before(
    damage: str, tmp_path: Path
) -> None:
    directory = tmp_path / "out"
    launch_on(2, directory, "checkpoint.per_rank=true")
    folder = directory / "checkpoints"
    part = folder / "parts_000000000060" / "part_000001.h5"
    if damage == "missing":
        part.unlink()
    elif damage == "flipped":
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 4
        part.write_bytes(content)
    else:
        shutil.copy(folder / "parts_000000000040" / "part_000001.h5", part)
    with pytest.raises(CheckpointError, match=r"part_000001"):
        open_checkpoint(folder / "checkpoint_000000000060.h5")
    assert launch_on(3, directory, resume="auto").first_step == 40


def test_parts_whose_checkpoint_was_never_finished_are_removed(tmp_path: Path) -> None:
    directory = tmp_path / "out"
    launch_on(2, directory, "checkpoint.per_rank=true", "time.steps=20")
    folder = directory / "checkpoints"
    shutil.copytree(
        folder / "parts_000000000020", folder / "parts_000000000033"
    )  # as a kill would leave them
    (folder / "parts_000000000033" / "part_000001.h5").rename(
        folder / "parts_000000000033" / "part_000001.h5.1.part"
    )
    assert launch_on(3, directory, resume="auto").first_step == 20
    assert not (folder / "parts_000000000033").exists()


def test_overwriting_removes_parts_and_older_checkpoints_lose_theirs(tmp_path: Path) -> None:
    directory = tmp_path / "out"
    launch_on(2, directory, "checkpoint.per_rank=true", "checkpoint.keep=1")
    assert [path.name for path in (directory / "checkpoints").glob("parts_*")] == [
        "parts_000000000060"
    ]
    config = config_of(directory)
    launch(config, overwrite=True)
    assert not list((directory / "checkpoints").glob("parts_*"))
