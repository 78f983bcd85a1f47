"""Files of this user stay so, and files of others stay as they are."""

from __future__ import annotations

import collections
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tetris_sim.__main__ import main
from tetris_sim.commands import init
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.outputs import results
from tetris_sim.support import files as cache

COMPILE = """
import os, numba
os.umask({umask})
from tetris_sim.support.files import cache_directory, generated_module
source = '''
import numba
@numba.njit(cache=True)
def double(x):
    return 2 * x
'''
print(generated_module(source, part="kernels").double(21))
(cache_directory("tuning") / "one.json").write_text("{{}}")
"""


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_what_is_compiled_belongs_to_this_user_alone(umask: int, tmp_path: Path) -> None:
    place = tmp_path / "deep" / "cache"
    environ = {**os.environ, "TETRIS_SIM_CACHE_DIR": str(place)}
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", COMPILE.format(umask=umask)],
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stdout == "42\n", done.stderr
        assert "not kept" not in done.stderr
    found = [tmp_path / "deep", place, *place.rglob("*")]
    assert any(path.suffix == ".nbi" for path in found)
    for path in found:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))


@pytest.mark.parametrize("folder", ["fields", "probes", "checkpoints", "fields-cut"])
def test_nothing_behind_a_link_is_removed(folder: str, tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    name = {"probes": "one.csv", "checkpoints": "checkpoint_000000000001.h5"}.get(
        folder, "fields_000000000001.h5"
    )
    (others / name).write_text("theirs")
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.json").write_text("{}")
    (out / folder).symlink_to(others)
    with pytest.raises(ConfigError, match=r"is a link to .* and --overwrite does not"):
        results.clear(out)
    assert (others / name).read_text() == "theirs"
    assert (out / "report.json").exists()


def test_results_behind_a_linked_directory_are_replaced(tmp_path: Path) -> None:
    """The directory itself is named by the user, wherever it lies."""
    (tmp_path / "disk" / "fields").mkdir(parents=True)
    (tmp_path / "disk" / "fields" / "fields_000000000001.h5").write_text("ours")
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    results.clear(tmp_path / "out")
    assert list((tmp_path / "disk").iterdir()) == []


def test_a_lock_that_is_a_link_makes_no_file(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".lock").symlink_to(tmp_path / "theirs")
    with pytest.raises(ConfigError, match="cannot be written to"), results.locked(tmp_path / "out"):
        pass
    assert not (tmp_path / "theirs").exists()


ODD = "\x1b[31mred\x07"


@pytest.mark.parametrize(
    "words",
    [
        ["validate", f"{ODD}.yaml"],
        ["run", f"{ODD}.yaml"],
        ["info", f"out{ODD}"],
        ["validate", "odd.yaml"],
        ["plan", "odd.yaml"],
        ["run", "rod.yaml", "--set", f"{ODD}=1"],
        ["run", "rod.yaml", "--set", f"initial={{type: file, path: '{ODD[1:]}.npy'}}"],
        [f"{ODD}"],
    ],
)
def test_control_characters_do_not_reach_the_terminal(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rod.yaml").write_text("grid: {shape: [4]}")
    (tmp_path / "odd.yaml").write_text('"\\e[31mred\\a": 1\nmodel: {type: "\\e]0;title\\a"}')
    try:
        code = main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    told = capsys.readouterr()
    assert code == 2
    assert not [it for it in told.out + told.err if not it.isprintable() and it != "\n"]


Usage = collections.namedtuple("Usage", "total used free")


@pytest.mark.parametrize("how", ["no room", "refused"])
def test_a_full_disk_does_not_stop_what_is_compiled(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TETRIS_SIM_CACHE_DIR", str(tmp_path))
    cache._warn_once.cache_clear()

    def refuse(path: Path, text: str) -> None:
        if tmp_path in path.parents:
            raise UnsupportedError(f"{path} cannot be written: disk full")
        path.write_text(text)

    if how == "no room":
        monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 40, 1 << 40, 1000))
    else:
        monkeypatch.setattr(cache, "atomic_text", refuse)
    module = cache.generated_module(f"answer = {how!r}", part="kernels")
    assert module.answer == how
    assert tmp_path not in Path(str(module.__file__)).parents
    assert "so what is compiled is not kept" in caplog.text


@pytest.mark.parametrize("there", [True, False])
def test_a_template_on_a_full_disk_leaves_what_was_there(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, text: str) -> None:
        raise UnsupportedError(f"{path} cannot be written: disk full")

    path = tmp_path / "new.yaml"
    if there:
        path.write_text("mine")
    monkeypatch.setattr(init, "atomic_text", refuse)
    assert main(["init", "-o", str(path), *["--overwrite"] * there]) == 3
    assert "disk full" in capsys.readouterr().err
    assert path.exists() == there
    assert not there or path.read_text() == "mine"


def test_a_template_may_go_to_a_device(capsys: pytest.CaptureFixture[str]) -> None:
    before: Any = os.stat("/dev/null")
    assert main(["init", "-o", "/dev/null", "--overwrite"]) == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert os.stat("/dev/null").st_ino == before.st_ino
