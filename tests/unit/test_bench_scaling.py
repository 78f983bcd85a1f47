"""`bench scaling`: whole runs on more and more devices, their table and their mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tetris_sim.__main__ import main
from tetris_sim.bench import scaling
from tetris_sim.bench.result import ScalingRow, Timing, read_result
from tetris_sim.bench.scaling import PROBLEMS, bench_scaling
from tetris_sim.config.loading import load_config
from tetris_sim.errors import UnsupportedError

SLOW = {"simulated": {"speed": 2e6, "latency": 1e-4}, "tuning_budget": 0}


def row(mode: str, devices: int, rate: float, digest: str, **other: object) -> ScalingRow:
    values = {"used": devices, "shape": (8, 16), "ranks": 1, **other}
    return ScalingRow(
        problem="heat-2d",
        mode=mode,
        devices=devices,
        steps=10,
        steady=Timing(rate, rate, rate),
        predicted=1.1 * rate,
        exchange_share=0.01,
        first_step_s=1.0,
        files_s=2.0,
        digest=digest,
        **values,  # type: ignore[arg-type]
    )


@pytest.mark.slow
def test_devices_share_a_grid_or_bring_their_own_and_keep_the_bits(tmp_path: Path) -> None:
    result = bench_scaling(
        ["gray-scott"],
        most=2,
        scale=64 * 64 / 16384**2,
        rounds=1,
        seconds=0.1,
        kind="simulated",
        compute=SLOW,
        folder=tmp_path,
    )
    one, two, continued, weak = result.scaling
    assert one.predicted
    assert two.predicted
    assert weak.predicted
    assert [each.mode for each in result.scaling] == [
        "strong",
        "strong",
        "continued from 1",
        "weak",
    ]
    assert [each.devices for each in result.scaling] == [1, 2, 2, 2]
    assert one.shape == two.shape == continued.shape == (64, 64)
    assert weak.shape == (128, 64)
    assert one.used == 1
    assert two.used == 2
    assert re.fullmatch(r"[0-9a-f]{16}", one.digest)
    assert one.digest == two.digest == continued.digest != weak.digest
    assert continued.steps == one.steps // 2

    # Rates depend on what else this machine does; the plan's do not.
    assert two.predicted > 1.3 * one.predicted
    assert weak.predicted > 1.3 * one.predicted
    assert all(each.rate > 0 for each in result.scaling)
    assert all(each.first_step_s > 0.1 and each.files_s > 0 for each in result.scaling)
    assert not list(tmp_path.iterdir())
    assert read_result(json.loads(json.dumps(result.as_json()))).scaling == result.scaling


def test_a_table_compares_with_one_device_with_the_plan_and_with_its_bits() -> None:
    rows = (
        row("strong", 1, 1e9, "a"),
        row("strong", 2, 1.9e9, "a"),
        row("strong", 4, 2e9, "b", used=2),
        row("weak", 2, 1.8e9, "c", shape=(16, 16)),
    )
    from tetris_sim.bench.tables import scaling_table

    cells = [
        dict(zip(scaling_table(rows).header, each, strict=True))
        for each in scaling_table(rows).rows
    ]
    assert [each["times one"] for each in cells] == ["1.00", "1.90", "2.00", "1.80"]
    assert [each["of ideal"] for each in cells] == ["100.0%", "95.0%", "50.0%", "90.0%"]
    assert [each["same bits"] for each in cells] == ["yes", "yes", "no", "yes"]
    assert cells[2]["devices"] == "4, 2 used"
    assert {each["off by"] for each in cells} == {"+10.0%"}


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_problem_is_a_configuration_of_any_size(name: str, tmp_path: Path) -> None:
    problem = PROBLEMS[name]
    config = problem.config(problem.sized(1e-5))
    config["time"] = (
        {"scheme": "steady"} if problem.steady else {**config.get("time", {}), "steps": 4}
    )
    path = tmp_path / "run.yaml"
    path.write_text(json.dumps(config))
    assert load_config(path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--gpus 2", "--gpus belongs to bench scaling"),
        ("scaling --problems heat-4d", "'heat-4d' was found; heat-2d"),
        ("scaling --scale 0", "a factor greater than 0"),
        ("scaling --gpus 0", "bench scaling --gpus 0"),
        ("scaling --rounds 0", "at least one timing"),
    ],
)
def test_mistakes_are_found_before_anything_runs(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scaling, "bench_scaling", lambda *_, **__: pytest.fail("it ran"))
    assert main(["bench", *words.split()]) in {2, 3}
    assert said in capsys.readouterr().err


def test_a_run_that_fails_says_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="ended with 2"):
        bench_scaling(["heat-2d"], most=1, scale=1e-6, kind="typewriter", folder=tmp_path)


def test_ranks_need_mpirun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UnsupportedError, match="mpirun"):
        bench_scaling(["heat-2d"], most=1, ranks=True)
