from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.fault_runs import (
    assert_same_results,
    checkpoint_steps,
    start,
    tetris_here,
    wait_until,
    write_plate,
)

STEPS, OFTEN, CHECKPOINT = 300_000, 500, 1_500


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a run that was killed with two or three checkpoints on the disk."""
    folder = tmp_path_factory.mktemp("killed")
    config = write_plate(folder, steps=STEPS, often=OFTEN, checkpoint=CHECKPOINT)
    results, log = folder / "out", folder / "log"
    with log.open("w") as said:
        process = start(said, "run", config)
        wait_until(
            lambda: max(checkpoint_steps(results), default=0) >= 3 * CHECKPOINT, process, log
        )
        process.kill()
        assert process.wait() == -9
    assert len(checkpoint_steps(results)) >= 2
    return results


@pytest.fixture(scope="module")
def uninterrupted(killed: Path) -> Path:
    """The results of the same run a little farther than where it was killed."""
    steps = checkpoint_steps(killed)[-1] + 2 * CHECKPOINT
    config = write_plate(killed.parent / "whole", steps=steps, often=OFTEN, checkpoint=CHECKPOINT)
    done = tetris_here("run", config)
    assert done.returncode == 0, done.stderr
    return killed.parent / "whole" / "out"


def _resume(killed: Path, results: Path, steps: int) -> str:
    """What the program says while it continues the killed run, whose results are now at
    `results`.
    """
    overrides = ["--set", f"time.steps={steps}", "--set", f"output.directory={results}"]
    resumed = tetris_here("run", killed.parent / "plate.yaml", "--resume", "auto", *overrides)
    assert resumed.returncode == 0, resumed.stderr
    return resumed.stderr


@pytest.mark.parametrize("damage", ["none", "cut off", "flipped bit", "empty"])
def test_a_damaged_newest_checkpoint_is_passed_over(
    tmp_path: Path, killed: Path, uninterrupted: Path, damage: str
) -> None:
    results = tmp_path / "out"
    shutil.copytree(killed, results)
    *_, before, newest = checkpoint_steps(results)
    path = results / "checkpoints" / f"checkpoint_{newest:012d}.h5"
    content = path.read_bytes()
    flipped = content[:5000] + bytes([content[5000] ^ 16]) + content[5001:]
    path.write_bytes(
        {"none": content, "cut off": content[:-700], "flipped bit": flipped, "empty": b""}[damage]
    )

    said = _resume(killed, results, checkpoint_steps(uninterrupted)[-1])
    assert (f"Skipped: {path}" in said) == (damage != "none")
    assert f"at step {newest if damage == 'none' else before}." in said
    assert_same_results(results, uninterrupted)


def test_without_any_good_checkpoint_nothing_is_replaced_unless_asked(
    tmp_path: Path, killed: Path
) -> None:
    results = tmp_path / "out"
    shutil.copytree(killed, results)
    damaged = [
        results / "checkpoints" / f"checkpoint_{step:012d}.h5" for step in checkpoint_steps(results)
    ]
    for path in damaged:
        path.write_bytes(b"nothing")
    before = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    overrides = ["--set", "time.steps=1000", "--set", f"output.directory={results}"]
    refused = tetris_here("run", killed.parent / "plate.yaml", "--resume", "auto", *overrides)
    assert refused.returncode == 2
    assert refused.stderr.count("Skipped: ") == len(damaged)
    assert "--overwrite" in refused.stderr
    assert {path: path.read_bytes() for path in results.rglob("*") if path.is_file()} == before

    config = write_plate(tmp_path / "whole", steps=1000, often=OFTEN, checkpoint=CHECKPOINT)
    assert tetris_here("run", config).returncode == 0
    assert (
        tetris_here("run", killed.parent / "plate.yaml", "--overwrite", *overrides).returncode == 0
    )
    assert_same_results(results, tmp_path / "whole" / "out")


def test_two_runs_do_not_write_to_one_folder(tmp_path: Path) -> None:
    config = write_plate(tmp_path, steps=10**9, often=10**8, checkpoint=10**8)
    log = tmp_path / "log"
    with log.open("w") as said:
        first = start(said, "run", config)
        try:
            wait_until(lambda: "cpu.plain with" in log.read_text(), first, log)
            for extra in (["--resume", "auto"], ["--overwrite"]):
                second = tetris_here("run", config, *extra)
                assert second.returncode == 2, second.stderr
                assert f"another run is writing to {tmp_path / 'out'}" in second.stderr
        finally:
            first.kill()
            first.wait()


def test_a_run_that_is_told_to_continue_what_never_began_begins(tmp_path: Path) -> None:
    config = write_plate(tmp_path, steps=100, often=10, checkpoint=50)
    done = tetris_here("run", config, "--resume", "auto")
    assert done.returncode == 0, done.stderr
    assert "starting at step 0" in done.stderr
    assert checkpoint_steps(tmp_path / "out") == [50, 100]
