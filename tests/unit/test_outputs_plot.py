from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.outputs_samples import (
    FakeSnapshot,
    fields_output,
    make_problem,
    names,
    write_fields,
)
from tetris_sim.__main__ import main
from tetris_sim.errors import ExitCode


@pytest.fixture(autouse=True)
def _as_on_the_command_line() -> Any:
    with np.errstate(all="warn"):
        yield


def picture(path: Path) -> Any:
    with Image.open(path) as found:
        return np.asarray(found.convert("RGB"), dtype=int)


def write_hill(directory: Path) -> None:
    """A block that is hot at one point only: z = 0.015, y = 0.045, x = 0.075 m."""
    problem = make_problem((4, 6, 8), (0.04, 0.06, 0.08))
    values = np.zeros(problem.state_shape)
    values[0, 1, 4, 7] = 100.0
    output = fields_output(problem, directory)
    output.start(0)
    output.write(FakeSnapshot(problem, 0, values))
    output.close()


def test_the_picture_of_the_last_record_is_named_after_variable_and_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_fields(make_problem(), tmp_path / "run")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert main(["plot", str(tmp_path / "run")]) == 0
    assert names(tmp_path / "here") == ["temperature_000000000040.png"]
    assert "temperature, step 40, t = 20 s" in capsys.readouterr().out
    assert picture(tmp_path / "here" / "temperature_000000000040.png").std() > 10


def test_one_record_can_be_chosen_by_step_or_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_fields(make_problem(), tmp_path / "run")
    run = str(tmp_path / "run")
    assert main(["plot", run, "-o", str(tmp_path / "a.png"), "--step", "20", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "picture": str(tmp_path / "a.png"),
        "step": 20,
        "time_s": 10.0,
        "variable": "temperature",
    }
    assert main(["plot", run, "-o", str(tmp_path / "b.png"), "--time", "11 s"]) == 0
    np.testing.assert_array_equal(picture(tmp_path / "a.png"), picture(tmp_path / "b.png"))
    with pytest.raises(SystemExit) as caught:
        main(["plot", run, "--step", "20", "--last"])
    assert caught.value.code == ExitCode.CONFIG


def test_a_slice_shows_what_lies_in_it(tmp_path: Path) -> None:
    write_hill(tmp_path / "run")
    run = str(tmp_path / "run")
    hot = {}
    for name, flags in (
        ("middle", []),
        ("at", ["--slice", "z=1.2cm"]),
        ("off", ["--slice", "z=5 mm"]),
        ("two", ["--slice", "z=0.015", "--slice", "x=75mm"]),
    ):
        assert main(["plot", run, "-o", str(tmp_path / f"{name}.png"), *flags]) == 0
        pixels = picture(tmp_path / f"{name}.png")
        hot[name] = int(((pixels - np.array([252, 255, 164])) ** 2).sum(axis=2).__lt__(30).sum())
    # The hill fills 1 of 48 points of the panel at z = 0.015; the colour bar has a little of its
    # colour in any case.
    assert hot["at"] > 20 * max(hot["middle"], hot["off"], 1)
    assert hot["two"] > hot["at"] / 2
    at = picture(tmp_path / "at.png")
    rows, columns = np.nonzero(((at - np.array([252, 255, 164])) ** 2).sum(axis=2) < 30)
    assert rows.mean() < at.shape[0] / 2  # y = 0.045 of 0.06 m: in the upper half
    assert columns.mean() > at.shape[1] / 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-o", "a.jpg"], "the suffix .jpg, which says what to write; allowed: .png"),
        (["--slice", "z"], "AXIS=POSITION is wanted"),
        (["--slice", "w=1mm"], "an axis of x, y or z"),
        (["--slice", "z=warm"], "a position is wanted"),
        (["--slice", "z=1 s"], "is a time"),
        (["--slice", "z=1 m"], "outside the box"),
        (["--variable", "salt"], "has temperature"),
    ],
)
def test_a_wrong_wish_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
    message: str,
) -> None:
    write_hill(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert main(["plot", "run", *flags]) == ExitCode.CONFIG
    assert message in capsys.readouterr().err
    assert not list(tmp_path.glob("*.png"))


def test_a_picture_is_replaced_only_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_hill(tmp_path / "run")
    target = tmp_path / "a.png"
    target.write_text("precious")
    assert main(["plot", str(tmp_path / "run"), "-o", str(target)]) == ExitCode.CONFIG
    assert "use --overwrite" in capsys.readouterr().err
    assert target.read_text() == "precious"
    assert main(["plot", str(tmp_path / "run"), "-o", str(target), "--overwrite"]) == 0
    assert math.prod(picture(target).shape) > 10**5
