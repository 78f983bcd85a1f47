"""`tetris-sim export` to films: a frame per record, one scale; ffmpeg is called, quoted, or named."""

from __future__ import annotations

import itertools
import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from tests.support.outputs_samples import make_problem, state, write_fields
from tests.unit.test_export import export, said
from tetris_sim.errors import ExitCode


@pytest.fixture(autouse=True)
def _as_on_the_command_line() -> Iterator[None]:
    with np.errstate(all="warn"):
        yield


@pytest.fixture
def plate(tmp_path: Path) -> Path:
    write_fields(make_problem((30, 40), (0.3, 0.4)), tmp_path / "run")
    return tmp_path / "run"


def test_a_gif_has_a_frame_per_record_on_one_scale(tmp_path: Path) -> None:
    problem = make_problem((20, 30), (0.2, 0.3))
    write_fields(problem, tmp_path / "run", steps=range(0, 40, 8))
    assert export(tmp_path / "run", tmp_path / "a.gif", "--fps", "4") == 0
    with Image.open(tmp_path / "a.gif") as film:
        assert getattr(film, "n_frames", 1) == 5
        assert film.info["duration"] == 250
        assert film.info["loop"] == 0
        frames = []
        for k in range(5):
            film.seek(k)
            frames.append(np.asarray(film.convert("RGB"), dtype=int))
    assert all((frame[0, 0] == 255).all() for frame in frames)
    # The state rises with time, and the scale does not move: brighter from frame to frame.
    middle = [frame[200:400, 150:450].mean() for frame in frames]
    assert all(later > earlier for earlier, later in itertools.pairwise(middle))
    # The colour bar, right of the panel, is the same in all of them.
    assert all((frame[100:400, -100:-80] == frames[0][100:400, -100:-80]).all() for frame in frames)


def test_a_film_of_a_state_that_was_constant_at_first_has_the_scale_of_the_whole(
    tmp_path: Path,
) -> None:
    from tetris_sim.outputs.exports import Film
    from tetris_sim.outputs.figure_layout import Caption
    from tetris_sim.outputs.sampling import default_cuts
    from tetris_sim.outputs.series import open_fields

    problem = make_problem((6, 7), (0.6, 0.7))
    write_fields(problem, tmp_path, steps=(0, 20))
    with h5py.File(tmp_path / "fields" / "fields_000000000000.h5", "r+") as file:
        file["temperature"][:] = 1000.0
    with open_fields(tmp_path / "fields.h5") as series:
        film = Film(series, (0, 1), 0, default_cuts(series.grid), Caption("u", "1", ""))
        later = state(problem, 20)
        assert film.limits() == (later.min(), 1000.0)


FFMPEG = """#!{python}
import json, sys
data = sys.stdin.buffer.read()
json.dump({{"arguments": sys.argv[1:], "bytes": len(data)}}, open({log!r}, "w"))
open(sys.argv[-1], "wb").write(b"film")
"""


def put_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    program = tmp_path / "bin" / "ffmpeg"
    program.parent.mkdir()
    program.write_text(text)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def test_an_mp4_is_made_by_ffmpeg_from_every_frame(
    plate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.json"
    put_on_path(tmp_path, monkeypatch, FFMPEG.format(python=sys.executable, log=str(log)))
    assert export(plate, tmp_path / "a.mp4", "--fps", "12.5") == 0
    assert (tmp_path / "a.mp4").read_bytes() == b"film"
    found = json.loads(log.read_text())
    arguments = found["arguments"]
    width, height = map(int, arguments[arguments.index("-s") + 1].split("x"))
    assert width % 2 == height % 2 == 0
    assert found["bytes"] == 3 * 3 * width * height
    assert arguments[arguments.index("-r") + 1] == "12.5"
    assert "mp4" in arguments  # the temporary name does not say so


def test_an_ffmpeg_that_fails_is_quoted_and_leaves_nothing(
    plate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put_on_path(tmp_path, monkeypatch, "#!/bin/sh\necho 'unknown encoder' >&2\nexit 1\n")
    assert export(plate, tmp_path / "a.mp4") == ExitCode.RESOURCES
    assert "ffmpeg says unknown encoder; write a .gif instead" in said(capsys)
    assert not list(tmp_path.glob("a.mp4*"))


def test_without_ffmpeg_the_way_out_is_named(
    plate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert export(plate, tmp_path / "a.mp4") == ExitCode.RESOURCES
    assert "write a .gif" in said(capsys)
