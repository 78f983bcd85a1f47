"""Sweeps: every run is what it would be alone, is made once, and nothing is begun that cannot be."""

from __future__ import annotations

import csv
import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tetris_sim
from tetris_sim.__main__ import main
from tetris_sim.api import sweep_workers
from tetris_sim.api.sweep_workers import find_seats
from tetris_sim.commands.sweep import read_over
from tetris_sim.config import load_config, make_config
from tetris_sim.errors import ConfigError, ExitCode
from tetris_sim.outputs.tables import read_table
from tetris_sim.scheduler.machine.machine import Gpu, find_machine
from tetris_sim.simulation.launch import launch

TEXT = """\
grid: {shape: [12, 10], size: [12 mm, 10 mm]}
model: {type: heat, material: copper}
initial: {type: expression, expression: 100*x/Lx}
boundaries: {"*": {type: neumann}, y+: {type: robin, h: 50, ambient: 20}}
time: {steps: 40}
compute: {devices: cpu, method: cpu.plain, tuning_budget: 0}
output: {probes: [{name: mid, at: [6 mm, 5 mm], every: 20 steps}]}
"""
H, MATERIAL = "boundaries.y+.h", "model.material"


@pytest.fixture
def plate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "plate.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.b=1,2", [1, 2]),
        ("a.b=10:500:20", [10 + 490 / 19 * k for k in range(20)]),
        ("a.b=1 mm:2 mm:3", ["1.0 mm", "1.5 mm", "2.0 mm"]),
        ("a.b=1:100:3log", [1.0, 10.0, 100.0]),
        ("a.b=gpu:0,cpu", ["gpu:0", "cpu"]),
        ("a.b={type: constant, value: 1}", [{"type": "constant", "value": 1}]),
    ],
)
def test_values_are_lists_or_numbers_between_two_ends(text: str, values: list[object]) -> None:
    key, read = read_over(text)
    assert key == "a.b"
    assert read == (pytest.approx(values) if isinstance(values[-1], float) else values)


@pytest.mark.parametrize("text", ["a", "a=", "=1", "a=1 mm:2:3", "a=-1:1:3log", "a=1:2:0", "a=[1"])
def test_values_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--over "):
        read_over(text)


def test_a_sweep_has_the_results_of_runs_made_alone_and_makes_them_once(
    plate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over: dict[str, list[Any]] = {H: [10.0, 500.0], MATERIAL: ["copper", "steel"]}
    result = tetris_sim.sweep(plate, over, processes=2)
    assert result.exit_code == ExitCode.OK
    assert [(row[H], row[MATERIAL]) for row in result.rows] == [
        (h, material) for h in (10.0, 500.0) for material in ("copper", "steel")
    ]

    alone = load_config(plate, overrides=[f"{H}=500", f"{MATERIAL}=steel", "output.pictures=false"])
    launch(alone)
    columns, rows = read_table(Path("results/plate/probes/mid.csv"))
    assert (
        result.rows[3]["mid: temperature [degC]"] == rows[-1][columns.index("temperature [degC]")]
    )

    data = result.to_xarray()
    assert dict(data.sizes) == {H: 2, MATERIAL: 2}
    assert (
        float(data["temperature mean [degC]"].sel({H: 500.0, MATERIAL: "steel"}))
        == (result.rows[3]["temperature mean [degC]"])
    )
    assert list(result.to_pandas()["run"]) == [1, 2, 3, 4]
    with (result.directory / "table.csv").open() as file:
        assert [row["ended"] for row in csv.DictReader(file)] == ["Done"] * 4

    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr("tetris_sim.api.sweeping.ProcessPool", refuse)
    assert tetris_sim.sweep(plate, over).rows == result.rows


def test_wrong_names_and_values_are_told_before_anything_is_made(
    plate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", str(plate), "--over", "boundaries.y+.hh=1,2", "--over", f"{MATERIAL}=stel"]
    assert main(words) == ExitCode.CONFIG
    err = capsys.readouterr().err
    assert "--over boundaries.y+.hh=1: boundaries.y+.hh: unknown key (did you mean 'h'?)" in err
    assert "did you mean 'steel'" in err
    assert err.count("unknown key") == 1
    assert not Path("sweeps").exists()

    with pytest.raises(ConfigError, match="equally many"):
        tetris_sim.sweep(plate, {H: [1, 2], MATERIAL: ["copper"]}, zipped=True)
    with pytest.raises(ConfigError, match=r"run 2: time\.dt = 1 s is unstable"):
        tetris_sim.sweep(plate, {"time.dt": [1e-6, 1.0]})


def test_a_run_that_fails_is_told_in_its_row_and_the_others_are_made(
    plate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", str(plate), "--zip", "--processes", "1"]
    words += ["--over", "initial.expression=1/(x-x),x", "--over", f"{MATERIAL}=copper,steel"]
    assert main(words) == ExitCode.NOT_FINITE
    out, err = capsys.readouterr()
    assert "2 runs, 1 failed: sweeps/plate/table.csv" in out
    assert "tetris-sim: run 1: initial: the expression gives inf" in err

    assert main([*words[:-1], f"{MATERIAL}=copper,brass"]) == ExitCode.CONFIG
    assert "sweeps/plate already holds another sweep" in capsys.readouterr().err
    assert main([*words[:-1], f"{MATERIAL}=steel", "--overwrite"]) == ExitCode.CONFIG


def test_jobs_make_their_parts_of_a_sweep_at_once(
    plate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", str(plate), "--over", f"{H}=1,2,3", "--processes", "1"]
    command = [sys.executable, "-m", "tetris_sim", *words]
    jobs = [subprocess.Popen([*command, "--part", f"{k}/2"]) for k in (1, 2)]
    assert [job.wait(120) for job in jobs] == [0, 0]
    with Path("sweeps/plate/table.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [row["ended"] for row in rows] == ["Done"] * 3
    made = {it: it.stat().st_mtime_ns for it in Path("sweeps").rglob("report.json")}
    assert len(made) == 3
    assert main(words) == 0  # nothing is left for the whole
    assert made == {it: it.stat().st_mtime_ns for it in made}

    for wrong, said in (("3/2", "part 3 of 2"), ("0/2", "part 0 of 2"), ("2", "K/N is wanted")):
        assert main([*words, "--part", wrong]) == ExitCode.CONFIG
        assert said in capsys.readouterr().err
    assert main([*words, "--part", "1/2", "--overwrite"]) == ExitCode.CONFIG
    assert "replaces nothing" in capsys.readouterr().err


def test_a_part_leaves_the_other_runs_alone(plate: Path) -> None:
    result = tetris_sim.sweep(plate, {H: [1.0, 2.0, 3.0, 4.0]}, processes=1, part=(2, 3))
    assert [row["ended"] for row in result.rows] == ["waiting", "Done", "waiting", "waiting"]
    assert result.exit_code == 0
    assert not result.failed


def test_a_sweep_that_was_killed_leaves_nobody_behind_and_goes_on(plate: Path) -> None:
    over = ["--over", f"{H}=1,2,3", "--processes", "1", "--set", "time.steps=30000"]
    command = [sys.executable, "-m", "tetris_sim", "sweep", str(plate), *over]
    table = Path("sweeps/plate/table.csv")
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        begun = time.monotonic()
        while not (table.exists() and ",Done," in table.read_text()):
            assert time.monotonic() - begun < 120
            assert process.poll() is None
            time.sleep(0.05)
        children = _children(process.pid)
        process.send_signal(signal.SIGKILL)
    assert children
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() - begun < 180
        time.sleep(0.1)

    first = Path("sweeps/plate/runs/0001/report.json")
    before = first.stat().st_mtime_ns
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 runs, 0 failed" in done.stdout
    assert first.stat().st_mtime_ns == before


def _children(pid: int) -> list[int]:
    return [int(it) for it in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_runs_are_shared_out_over_cores_or_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = dataclasses.replace(find_machine(), threads=8, cores=tuple(range(8)), gpus=())
    monkeypatch.setattr(sweep_workers, "find_machine", lambda: machine)
    data = {
        "grid": {"shape": [12, 10]},
        "model": {"type": "heat", "material": "copper"},
        "initial": {"type": "constant", "value": 0},
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"steps": 1},
    }
    config = make_config(data)
    seats = find_seats([config] * 100)
    assert [seat.cores for seat in seats] == [(core,) for core in range(8)]
    assert [seat.cores for seat in find_seats([config] * 2)] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    three = make_config(data | {"compute": {"threads": 3}})
    assert len(find_seats([three] * 100)) == 2

    gpus = tuple(Gpu(k, "a GPU", "sm_90", 1 << 30, 1 << 20, "13.0") for k in range(2))
    machine = dataclasses.replace(machine, gpus=gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [seat.gpu for seat in find_seats([config] * 100)] == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert [seat.gpu for seat in find_seats([config] * 100)] == ["5", "7"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "5,7"


DEAF = """
import signal, sys, time
from tetris_sim.api import sweep_workers

def hang(**order):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("begun", file=sys.stderr, flush=True)
    time.sleep(600)

sweep_workers._LEAVING = 1.0
sweep_workers.make_runs = {obey}
sweep_workers._serve([{core}])
"""


@pytest.mark.parametrize("obey", ["hang", "lambda **order: {}"])
def test_a_process_of_a_sweep_ends_with_its_parent(obey: str) -> None:
    """Also one that is deaf, and one that finds nobody to reply to."""
    core = min(os.sched_getaffinity(0))
    process = subprocess.Popen(
        [sys.executable, "-c", DEAF.format(obey=obey, core=core)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        process.stdin.write('{"texts": [""]}\n')
        process.stdin.flush()
        process.stdout.close()
        if obey == "hang":
            assert process.stderr.readline() == "begun\n"
            process.stdin.close()
        assert process.wait(60) == 75
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
