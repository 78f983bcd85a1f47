"""Runs that end once nothing changes: at the same step however they are divided or interrupted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.thread_ranks import run_ranks
from tetris_sim.api.running import simulate
from tetris_sim.config import Config, read_config
from tetris_sim.errors import ConfigError, ExitCode
from tetris_sim.outputs.checkpoint import open_checkpoint
from tetris_sim.outputs.tables import read_table
from tetris_sim.simulation.launch import launch

ROD = """
schema: 1
grid: {shape: [48, 6], size: [24 mm, 3 mm]}
model: {type: heat, material: copper}
initial: {type: expression, expression: "20 + 30*x/0.024"}
boundaries: {x-: {type: dirichlet, value: 50}, x+: {type: dirichlet, value: 20}, y: {type: periodic}}
time: {cfl: 0.2, steps: 40000, until: {change: 0.02 K/s, every: 70 steps}}
compute: {method: cpu.plain, threads: 1, tuning_budget: 0, time_block: 4}
output: {pictures: false, fields: {every: 4000 steps}, statistics: {every: 4000 steps}}
checkpoint: {every: 2000 steps}
"""


def config_of(directory: Path, *overrides: str) -> Config:
    return read_config(
        ROD,
        name="rod.yaml",
        base=directory.parent,
        overrides=[f"output.directory={directory}", *overrides],
    )


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The results of a run in one process, and the step at which it ended."""
    directory = tmp_path_factory.mktemp("until") / "alone"
    report = launch(config_of(directory))
    assert report.exit_code == ExitCode.OK
    return directory, report.step


def last_field(directory: Path, step: int) -> np.ndarray:
    with open_checkpoint(directory / "checkpoints" / f"checkpoint_{step:012d}.h5") as checkpoint:
        return checkpoint.read(((0, 6), (0, 48)))


def test_the_state_it_ends_with_is_steady_and_written(ended: tuple[Path, int]) -> None:
    directory, step = ended
    assert step % 70 == 0
    assert 70 < step < 40000

    ramp = 50 - 30 * (np.arange(48) + 0.5) / 48
    assert np.abs(last_field(directory, step)[0] - ramp[None]).max() < 0.02 * 0.3  # K, of s

    _, rows = read_table(directory / "statistics.csv")
    assert rows[-1][0] == step
    assert (directory / "fields" / f"fields_{step:012d}.h5").exists()
    report = json.loads((directory / "report.json").read_text())
    assert report["ended"].startswith("Done: no point changes by more than")


def test_it_ends_at_the_first_pair_of_steps_that_is_still(
    ended: tuple[Path, int], tmp_path: Path
) -> None:
    _, end = ended
    dt = config_of(tmp_path).build().dt

    def state(step: int) -> np.ndarray:
        overrides = (f"time.steps={step}", "checkpoint.every=null", "time.until=null")
        launch(config_of(tmp_path / f"{step}", *overrides))
        return last_field(tmp_path / f"{step}", step)

    for step in (end - 70, end):
        still = float(np.abs(state(step) - state(step - 1)).max()) / dt < 0.02
        assert still == (step == end)


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_end_at_the_same_step_with_the_same_bits(
    ended: tuple[Path, int], size: int, tmp_path: Path
) -> None:
    config = config_of(tmp_path / "ranks")
    reports = run_ranks(size, lambda ranks: launch(config, ranks=ranks))
    assert {report.step for report in reports} == {ended[1]}
    assert np.array_equal(last_field(tmp_path / "ranks", ended[1]), last_field(*ended))


@pytest.mark.parametrize("before", [0, 1, 2, 71])
def test_a_restart_ends_at_the_same_step(
    ended: tuple[Path, int], before: int, tmp_path: Path
) -> None:
    """Also one that begins with either step of the last pair."""
    directory, end = ended
    short = tmp_path / "short"
    launch(config_of(short, f"time.steps={end - before}", "time.until=null"))
    report = launch(config_of(short), resume="auto")
    # A state that was left at the second step of a pair has nothing before it to compare with.
    assert report.step == (end if before else end + 70)
    if before:
        assert np.array_equal(last_field(short, end), last_field(directory, end))


def contents(directory: Path) -> dict[str, object]:
    """What a run leaves behind: bytes of its tables, values of its fields, names of the rest."""
    found: dict[str, object] = {"checkpoints": sorted(it.name for it in directory.rglob("check*"))}
    found |= {it.name: it.read_bytes() for it in directory.rglob("*.csv")}
    for record in sorted((directory / "fields").iterdir()):
        with h5py.File(record) as file:
            found[record.name] = file["temperature"][()].tobytes()
    return found


@pytest.mark.parametrize("n_ranks", [1, 2])
def test_a_run_that_is_over_does_not_go_on(
    ended: tuple[Path, int], n_ranks: int, tmp_path: Path
) -> None:
    directory = tmp_path / "again"
    shutil.copytree(ended[0], directory)
    before = contents(directory)
    for _ in range(2):
        reports = run_ranks(
            n_ranks, lambda ranks: launch(config_of(directory), resume="auto", ranks=ranks)
        )
        assert {(it.step, it.exit_code) for it in reports} == {(ended[1], ExitCode.OK)}
        assert reports[0].ended.startswith("Done: no point changes by more than")
        assert contents(directory) == before


def test_nor_does_one_that_was_killed_behind_its_last_checkpoint(
    ended: tuple[Path, int], tmp_path: Path
) -> None:
    """A checkpoint of the step at which it ends is due there anyhow, before the last outputs."""
    directory, end = tmp_path / "killed", ended[1]
    launch(config_of(directory, "checkpoint.every=70 steps"))
    before = contents(directory)
    with (directory / "statistics.csv").open("r+b") as table:
        lines = table.readlines()
        table.truncate(sum(map(len, lines[:-1])))
    (directory / "fields" / f"fields_{end:012d}.h5").unlink()
    (directory / "report.json").unlink()
    report = launch(config_of(directory, "checkpoint.every=70 steps"), resume="auto")
    assert (report.step, report.exit_code) == (end, ExitCode.OK)
    assert contents(directory) == before


def test_a_later_end_does_not_wake_it_and_a_smaller_change_does(
    ended: tuple[Path, int], tmp_path: Path
) -> None:
    directory = tmp_path / "longer"
    shutil.copytree(ended[0], directory)
    longer = config_of(directory, "time.steps=80000")
    assert launch(longer, resume="auto").step == ended[1]

    finer = launch(config_of(directory, "time.until.change=0.01 K/s"), resume="auto")
    alone = launch(config_of(tmp_path / "finer", "time.until.change=0.01 K/s"))
    assert finer.step == alone.step > ended[1]
    assert np.array_equal(
        last_field(directory, alone.step), last_field(tmp_path / "finer", alone.step)
    )


def test_another_state_wakes_it(ended: tuple[Path, int], tmp_path: Path) -> None:
    with simulate(config_of(tmp_path / "woken")) as simulation:
        assert simulation.run() is not None
        end = simulation.step
        assert simulation.run() is not None
        assert simulation.step == end == ended[1]
        simulation.set_field(np.full((6, 48), 20.0))
        simulation.run()
        assert simulation.step > end + 70


def test_without_a_last_step_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give either t_end or steps: until ends a run before"):
        config_of(tmp_path, "time.steps=null")


@pytest.mark.parametrize("change", ["0", "-1 K/s", "1 K", "soon"])
def test_a_rate_that_is_none_is_refused(change: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a rate of change greater than 0 is wanted"):
        config_of(tmp_path, f"time.until.change={change}")


def test_a_run_that_never_gets_there_goes_to_its_last_step(tmp_path: Path) -> None:
    report = launch(config_of(tmp_path / "cut", "time.steps=200"))
    assert (report.step, report.ended) == (200, "Done")
