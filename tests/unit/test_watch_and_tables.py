"""Verbs that read what a run wrote: watch, plot of tables, export of slices, completion."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from tetris_sim.__main__ import main
from tetris_sim.commands import VERBS, sources
from tetris_sim.commands.watch import as_lines, look, sparkline
from tetris_sim.config import load_config
from tetris_sim.errors import ExitCode
from tetris_sim.outputs import results
from tetris_sim.simulation.launch import launch

TEXT = """\
grid: {shape: [6, 5, 4], size: [6 mm, 5 mm, 4 mm]}
model: {type: heat, material: copper}
initial: {type: expression, expression: 1e4*x + 2e4*y + 3e4*z}
boundaries: {"*": {type: neumann}}
time: {steps: 40}
compute: {devices: cpu, method: cpu.plain, threads: 1, tuning_budget: 0}
output:
  fields: {every: 40 steps}
  probes: [{name: mid, at: [3 mm, 3 mm, 1 mm], every: 10 steps}]
  statistics: {every: 10 steps}
  pictures: false
"""


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("block")
    (folder / "block.yaml").write_text(TEXT, encoding="utf-8")
    there = f"output.directory={folder / 'run'}"
    launch(load_config(folder / "block.yaml", overrides=[there], environ={}))
    return folder / "run"


# ---- watch


def test_a_run_that_has_ended_is_shown_with_its_curves(
    block: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(block)]) == ExitCode.OK
    first, bar, *curves = capsys.readouterr().out.splitlines()
    assert first.endswith(": Done")
    assert "100%" in bar
    assert "step 40/40" in bar
    assert any(re.search(r"mid: temperature \[degC\] +[▁-█]{5} ", line) for line in curves)

    assert main(["watch", str(block), "--json"]) == ExitCode.OK
    told = json.loads(capsys.readouterr().out)
    assert (told["step"], told["running"], told["ended"]) == (40, False, "Done")


def test_a_run_under_way_is_seen_from_its_files_alone(tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_text(TEXT, encoding="utf-8")
    directory = tmp_path / "run"
    words = [
        "run",
        "long.yaml",
        "--set",
        "time.steps=20000000",
        "--set",
        f"output.directory={directory}",
    ]
    words += ["--set", "output.probes=[]", "--set", "output.fields=null"]
    words += ["--set", "output.statistics={every: 1000 steps}"]
    command = [sys.executable, "-m", "tetris_sim", *words]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            begun = time.monotonic()
            while not (directory / "statistics.csv").exists() or look(directory).step < 5000:
                assert time.monotonic() - begun < 120
                assert process.poll() is None
                time.sleep(0.1)
            state = look(directory)
            time.sleep(0.5)
            later = look(directory)
        finally:
            process.kill()

    assert state.running
    assert (state.steps, state.ended) == (20_000_000, "")
    assert later.step > state.step
    pace = (later.step - state.step) / (later.written - state.written)
    left = later.seconds_left(state)
    assert left == pytest.approx((20_000_000 - later.step) / pace, rel=0.2)
    assert "left" in "\n".join(as_lines(directory, later, state))
    assert not look(directory).running
    assert "stopped without a report" in next(as_lines(directory, look(directory)))


def test_a_directory_without_a_run_is_refused(
    tmp_path: Path, block: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", str(tmp_path)]) == ExitCode.CONFIG
    assert main(["watch", str(block), "--interval", "0"]) == ExitCode.CONFIG
    assert "holds no results" in capsys.readouterr().err


def test_a_sparkline_is_as_wide_as_asked_and_has_the_ends_of_the_values() -> None:
    line = sparkline([math.sin(k / 30) for k in range(1000)], 40)
    assert len(line) == 40
    assert {"▁", "█"} <= set(line)


# ---- tables and slices


@pytest.mark.parametrize("name", ["statistics.csv", "probes/mid.csv"])
def test_a_table_is_drawn_over_time(
    name: str, block: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plot", str(block / name)]) == ExitCode.OK
    picture = matplotlib.image.imread(f"{Path(name).stem}.png")[..., :3]
    assert (np.ptp(picture, axis=2) > 0.3).any()  # lines have colours
    assert main(["plot", str(block / name)]) == ExitCode.CONFIG  # it is there
    assert main(["plot", str(block / name), "--overwrite", "--step", "1"]) == ExitCode.CONFIG
    assert main(["plot", str(block / name), "-o", "b.png", "--variable", "nix"]) == ExitCode.CONFIG


def test_a_slice_is_exported_with_values_between_the_points(
    block: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with sources.open_series(block) as series:
        whole = series.read(0, 0, ((0, 4), (0, 5), (0, 6)))
    words = ["export", str(block), "--step", "0"]
    assert main([*words, "--slice", "z=1.75 mm", "-o", "a.npy"]) == ExitCode.OK
    assert np.allclose(np.load("a.npy"), 0.75 * whole[1] + 0.25 * whole[2], rtol=1e-14)
    assert (
        main([*words, "--slice", "z=0.1 mm", "--slice", "x=2.5 mm", "-o", "b.npy"]) == ExitCode.OK
    )
    assert np.array_equal(np.load("b.npy"), whole[0, :, 2])  # beyond the outermost point: its value
    line = ["--slice", "z=1.5 mm", "--slice", "x=2.5 mm"]
    assert main([*words, *line, "-o", "c.csv"]) == ExitCode.OK
    table = np.loadtxt("c.csv", delimiter=",", skiprows=1)
    assert np.array_equal(table[:, -1], whole[1, :, 2])

    every = ["--slice", "x=1mm", "--slice", "y=1mm", "--slice", "z=1mm"]
    assert main([*words, *every, "-o", "d.npy"]) == ExitCode.CONFIG
    assert main([*words, "--slice", "z=1 m", "-o", "d.npy"]) == ExitCode.CONFIG
    assert not Path("d.npy").exists()


def test_a_slice_for_other_programs_says_where_it_lies(block: Path, tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    path = tmp_path / "cut.nc"
    assert main(["export", str(block), "--slice", "y=2 mm", "-o", str(path)]) == ExitCode.OK
    with xarray.open_dataset(path) as data:
        assert data["temperature"].dims == ("time", "z", "x")
        assert float(data["y"]) == 2e-3


# ---- completion


def completed(shell: str, script: str) -> list[str]:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    done = subprocess.run([shell, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.fixture
def scripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    for shell in ("bash", "zsh", "fish"):
        assert main(["completion", shell]) == ExitCode.OK
        (tmp_path / shell).write_text(capsys.readouterr().out, encoding="utf-8")
    return tmp_path


def test_bash_completes_verbs_and_the_flags_of_each(scripts: Path) -> None:
    def ask(*words: str) -> list[str]:
        shown = " ".join(f"'{word}'" for word in words)
        return completed(
            "bash",
            f"cd {scripts}; source ./bash; COMP_WORDS=(tetris-sim {shown}); COMP_CWORD={len(words)}; "
            '_tetris_sim; printf "%s\\n" "${COMPREPLY[@]}"',
        )

    assert ask("s") == ["sweep"]
    assert set(VERBS) <= set(ask(""))
    assert ask("sweep", "a.yaml", "--ov") == ["--over", "--overwrite"]
    assert ask("-q", "bench", "d") == ["devices"]


def test_fish_completes_verbs_and_the_flags_of_each(scripts: Path) -> None:
    ask = f"source {scripts / 'fish'}; complete -C "
    assert "sweep" in completed("fish", ask + "'tetris-sim sw'")
    assert "--resume" in completed("fish", ask + "'tetris-sim run --re'")


def test_zsh_reads_its_script(scripts: Path) -> None:
    assert completed("zsh", f"zsh -n {scripts / 'zsh'} && echo good") == ["good"]
    text = (scripts / "zsh").read_text()
    assert all(f"        {verb})" in text for verb in VERBS)


def test_the_lock_tells_whether_a_run_is_under_way(tmp_path: Path) -> None:
    (tmp_path / results.CONFIG).write_text(TEXT, encoding="utf-8")
    assert not look(tmp_path).running
    with results.locked(tmp_path):
        assert look(tmp_path).running
    assert not look(tmp_path).running
    assert os.access(tmp_path / results.LOCK, os.R_OK)
