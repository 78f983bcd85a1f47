"""What the system, HDF5 or a decoder refuses ends every verb in a sentence with its exit code."""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import tetris_sim as ts
from tetris_sim.__main__ import main
from tetris_sim.commands import VERBS, home
from tetris_sim.config import read_config
from tetris_sim.errors import ConfigError
from tetris_sim.simulation.launch import launch

ROD = """
schema: 1
title: Stab – ü ≥ 5 µm
grid: {shape: [16, 6], size: [24 mm, 9 mm]}
model: {type: heat, material: copper}
initial: {type: constant, value: 20}
boundaries: {"*": {type: neumann}, x-: {type: dirichlet, value: 50}}
time: {cfl: 0.2, steps: 8}
compute: {method: cpu.plain, threads: 1, tuning_budget: 0}
output: {pictures: false, fields: {every: 2 steps}, statistics: {every: 2 steps}}
"""


def no_hdf5() -> None:
    with h5py.File(io.BytesIO(b"no HDF5 at all"), "r"):
        pass


def no_attribute() -> None:
    with h5py.File(io.BytesIO(), "w") as file:
        file.attrs["nothing"]


def throw(error: BaseException) -> Callable[[], None]:
    def thrown() -> None:
        raise error

    return thrown


def system(number: int, path: str | None = "state.h5") -> Callable[[], None]:
    return throw(OSError(number, os.strerror(number), path))


KINDS: dict[str, tuple[Callable[[], Any], int]] = {
    "EIO": (system(errno.EIO), 3),
    "EIO without a name": (system(errno.EIO, None), 3),
    "ENOSPC": (system(errno.ENOSPC), 3),
    "EROFS": (system(errno.EROFS), 3),
    "EMFILE": (system(errno.EMFILE), 3),
    "ENAMETOOLONG": (system(errno.ENAMETOOLONG), 2),
    "ENOENT": (system(errno.ENOENT), 2),
    "EACCES": (system(errno.EACCES), 2),
    "HDF5": (no_hdf5, 2),
    "HDF5 without a name": (no_attribute, 2),
    "codec": (lambda: b"\xff".decode(), 2),
    "archive": (throw(zipfile.BadZipFile("File is not a zip file")), 2),
    "compressed": (lambda: zlib.decompress(b"nothing"), 2),
    "short": (lambda: struct.unpack("<q", b"abc"), 2),
    "memory": (throw(MemoryError()), 3),
    "library": (throw(ImportError("libcuda.so.1: cannot open shared object file")), 3),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_verb_ends_in_a_sentence(
    verb: str, kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, add_arguments, run = home(verb)
    thrown, code = KINDS[kind]
    monkeypatch.setattr(module, add_arguments, lambda parser: None)
    monkeypatch.setattr(module, run, lambda args: thrown())
    assert main([verb]) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("tetris-sim: ")
    assert "Traceback" not in told.err
    assert main([verb, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["exit_code"] == code


@pytest.mark.parametrize(
    "error", [ValueError("odd"), KeyError("odd"), AssertionError(), TypeError()]
)
def test_mistakes_of_the_program_stay_what_they_are(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module("tetris_sim.commands.info")
    monkeypatch.setattr(module, "add_arguments", lambda parser: None)
    monkeypatch.setattr(module, "run", lambda args: throw(error)())
    assert main(["info"]) == 1
    assert "this is a bug in tetris_sim" in capsys.readouterr().err


@pytest.fixture(scope="module")
def rod(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration and the results of its run."""
    folder = tmp_path_factory.mktemp("rod")
    (folder / "rod.yaml").write_text(ROD, encoding="utf-8")
    launch(read_config(ROD, name="rod", base=folder, overrides=[f"output.directory={folder}/out"]))
    return folder


def tetris(folder: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tetris_sim", *words],
        **{"stdout": subprocess.PIPE, **more},
        stderr=subprocess.PIPE,
        cwd=folder,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=200,
        check=False,
    )


@pytest.mark.parametrize(
    "verb", [("info", "out"), ("watch", "out"), ("plan", "rod.yaml"), ("validate", "rod.yaml")]
)
@pytest.mark.parametrize(
    "given",
    [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}],
)
def test_what_a_terminal_cannot_show_is_left_out(
    verb: tuple[str, ...], given: dict[str, str], rod: Path
) -> None:
    done = tetris(rod, *verb, env={**os.environ, **given})
    assert done.returncode == 0, done.stderr
    assert "Stab ? ? ? 5" in done.stdout or "?" in done.stdout
    assert done.stdout.isascii()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize(
    "words",
    [
        ("info", "out"),
        ("plan", "rod.yaml"),
        ("run", "rod.yaml", "--overwrite", "--json"),
        ("--help",),
    ],
)
def test_a_full_standard_output_is_said(words: tuple[str, ...], buffered: str, rod: Path) -> None:
    with open("/dev/full", "w") as full:
        env = {**os.environ, "PYTHONUNBUFFERED": buffered}
        done = tetris(rod, *words, stdout=full, env=env)
    if words == ("--help",) and buffered:
        return  # argparse swallows what it cannot print
    assert done.returncode == 3, done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_file_that_cannot_be_removed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rod.yaml").write_text(ROD, encoding="utf-8")
    unlink = Path.unlink

    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        if path.name == "before.h5":
            raise OSError(errno.EIO, "Input/output error", str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.chdir(tmp_path)
    assert main(["run", "rod.yaml", "-q"]) == 3
    assert "before.h5 cannot be written: Input/output error" in capsys.readouterr().err


LONG = "x" * 300


@pytest.mark.parametrize(
    "key",
    [
        f"initial={{type: file, path: {LONG}.npy}}",
        f"initial={{type: file, path: {LONG}.h5, dataset: u}}",
        f"initial={{type: run, from: {LONG}}}",
        f"output.directory={LONG}",
        f"boundaries.x-.value={{table: {LONG}.csv}}",
        f"model.sources=[{{power: 3 W, over_time: {LONG}.csv}}]",
    ],
)
def test_names_that_are_too_long_are_refused(
    key: str, rod: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in ("run",) if key.startswith("output") else ("validate", "run"):
        assert main([verb, str(rod / "rod.yaml"), "--set", key]) == 2
        assert "File name too long" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PK\x03\x04" + bytes(100), "cannot be read as a .npy array"),
        (b"", "cannot be read as a .npy array"),
        (b"\x80\x04K\x01.", "cannot be read as a .npy array"),
        (None, "100 bytes lie behind the array"),
    ],
)
def test_what_is_no_array_is_refused(content: bytes | None, words: str, tmp_path: Path) -> None:
    path = tmp_path / "state.npy"
    if content is None:
        np.save(path, np.zeros((6, 16)))
        content = path.read_bytes() + bytes(100)
    path.write_bytes(content)
    given = f"initial={{type: file, path: {path}}}"
    config = read_config(ROD, name="rod", base=tmp_path, overrides=[given])
    with pytest.raises(ConfigError, match=words):
        config.build()


def test_an_archive_by_another_name_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "state.npz", np.zeros((6, 16)))
    (tmp_path / "state.npz").rename(tmp_path / "state.npy")
    given = f"initial={{type: file, path: {tmp_path}/state.npy}}"
    config = read_config(ROD, name="rod", base=tmp_path, overrides=[given])
    with pytest.raises(ConfigError, match=r"cannot be read as a \.npy array"):
        config.build()


MASKED = np.ma.array(np.full((6, 16), 20.0), mask=np.arange(96).reshape(6, 16) == 7)


@pytest.mark.parametrize(
    "use",
    [
        lambda folder: ts.thermal_diffusion(MASKED, steps=2),
        lambda folder: ts.run(folder / "rod.yaml", initial=MASKED, progress=False),
        lambda folder: ts.solve_pde({"u": MASKED}, {"u": "-u"}, 1, dt=0.1),
        lambda folder: set_field(folder),
    ],
)
def test_masked_values_are_no_data(
    use: Callable[[Path], object], rod: Path, tmp_path: Path
) -> None:
    (tmp_path / "rod.yaml").write_text(ROD, encoding="utf-8")
    with pytest.raises(ConfigError, match="1 values are masked"):
        use(tmp_path)


def set_field(folder: Path) -> None:
    with ts.simulate(folder / "rod.yaml", folder / "masked") as simulation:
        simulation.set_field(MASKED)


def test_a_mask_that_hides_nothing_does_no_harm(tmp_path: Path) -> None:
    open_array = np.ma.array(np.full((6, 16), 20.0))
    (tmp_path / "rod.yaml").write_text(ROD, encoding="utf-8")
    ts.run(tmp_path / "rod.yaml", tmp_path / "out", initial=open_array, progress=False)
