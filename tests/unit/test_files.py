from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tetris_sim.errors import ExitCode, UnsupportedError
from tetris_sim.support.files import (
    atomic_file,
    atomic_hdf5,
    atomic_text,
    disk_errors,
    make_directory,
    remove_parts,
)


def test_a_file_appears_under_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "result.txt"
    with atomic_file(target) as part:
        part.write_text("new")
        assert part.parent == tmp_path
        assert part.name.endswith(".part")
        assert not target.exists()
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["result.txt"]


@pytest.mark.parametrize(
    "error", [ValueError("no"), KeyboardInterrupt(), OSError(errno.ECHILD, "other")]
)
def test_an_exception_leaves_the_old_file_and_no_part(tmp_path: Path, error: BaseException) -> None:
    target = tmp_path / "result.txt"
    target.write_text("old")
    with pytest.raises(type(error)):
        write_half(target, error)
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.txt"]


def write_half(target: Path, error: BaseException) -> None:
    with atomic_file(target) as part:
        part.write_text("half")
        raise error


def test_everything_is_on_the_disk_before_the_name_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def noted_fsync(descriptor: int) -> None:
        events.append(
            "sync directory" if os.path.isdir(f"/proc/self/fd/{descriptor}") else "sync file"
        )
        fsync(descriptor)

    def noted_replace(self: Path, target: Path) -> Path:
        events.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(Path, "replace", noted_replace)
    atomic_text(tmp_path / "result.txt", "text: ü")
    assert events == ["sync file", "rename", "sync directory"]
    assert (tmp_path / "result.txt").read_bytes() == "text: ü".encode()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_is_said_with_the_file_and_the_free_bytes(tmp_path: Path, number: int) -> None:
    target = tmp_path / "result.txt"
    with pytest.raises(UnsupportedError) as caught:
        write_half(target, OSError(number, os.strerror(number)))
    free = os.statvfs(tmp_path)
    assert str(target) in str(caught.value)
    assert " bytes are free in " in str(caught.value)
    said = int(str(caught.value).split(" bytes are free")[0].split()[-1])
    assert said == pytest.approx(free.f_bavail * free.f_frsize, rel=0.2)
    assert caught.value.exit_code == ExitCode.RESOURCES
    assert os.listdir(tmp_path) == []


def test_a_place_that_may_not_be_written_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        UnsupportedError, match=r"missing/result\.txt cannot be written: No such file"
    ):
        atomic_text(tmp_path / "missing" / "result.txt", "text")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UnsupportedError, match="cannot be written"):
        make_directory(tmp_path / "file")


def test_errors_that_are_not_about_the_disk_pass_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), disk_errors(tmp_path / "target"):
        (tmp_path / "another file").read_text()


def test_leftovers_of_a_killed_process_are_removed_and_nothing_else(tmp_path: Path) -> None:
    for name in ("fields.h5.77.part", "fields.h5", "other.h5.3.part", "part"):
        (tmp_path / name).write_text("x")
    remove_parts(tmp_path, "fields.")
    assert sorted(os.listdir(tmp_path)) == ["fields.h5", "other.h5.3.part", "part"]
    remove_parts(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["fields.h5", "part"]


def test_hdf5_files_hold_what_was_put_into_them(tmp_path: Path, rng: np.random.Generator) -> None:
    values = rng.random((70, 90))
    with atomic_hdf5(tmp_path / "a.h5") as file:
        file.create_dataset("plain", data=values)
        dataset = file.create_dataset(
            "packed", values.shape, "f8", chunks=(7, 90), compression="gzip", shuffle=True
        )
        for row in range(0, 70, 7):
            dataset[row : row + 7] = values[row : row + 7]
        file["plain"].attrs["unit"] = "degC"
    with h5py.File(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(file["plain"][:], values)
        np.testing.assert_array_equal(file["packed"][:], values)
        assert file["plain"].attrs["unit"] == "degC"
    assert os.listdir(tmp_path) == ["a.h5"]


def test_an_exception_while_hdf5_writes_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "a.h5"
    target.write_bytes(b"old")

    def write() -> None:
        with atomic_hdf5(target) as file:
            file["x"] = np.arange(5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.h5"]


FULL_DISK = """
import resource, sys
import numpy as np
from pathlib import Path
from tetris_sim.errors import UnsupportedError
from tetris_sim.support.files import atomic_hdf5

target, packed = Path(sys.argv[1]), sys.argv[2] == "packed"
options = {"chunks": (10, 1000), "compression": "gzip"} if packed else {}
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
try:
    with atomic_hdf5(target) as file:
        dataset = file.create_dataset("a", shape=(300, 1000), dtype="f8", **options)
        for row in range(0, 300, 10):
            dataset[row : row + 10] = np.random.default_rng(row).random((10, 1000))
except UnsupportedError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
with atomic_hdf5(target.with_name("after.h5")) as file:
    file["a"] = np.arange(9)
"""


@pytest.mark.parametrize("storage", ["contiguous", "packed"])
def test_a_limit_on_the_size_of_files_is_an_error_and_no_crash_at_the_end(
    tmp_path: Path, storage: str
) -> None:
    target = tmp_path / "a.h5"
    target.write_bytes(b"old")
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(target), storage],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (
        done.stderr
    )  # HDF5 left to itself dies with a segmentation fault here
    assert f"{target} cannot be written" in done.stdout
    assert "ulimit -f" in done.stdout
    assert "bytes are free" in done.stdout
    assert target.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["a.h5", "after.h5"]
    with h5py.File(tmp_path / "after.h5") as file:
        assert file["a"][8] == 8


def test_a_disk_that_fills_up_while_hdf5_closes_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, real = tmp_path / "a.h5", os.pwrite
    closing = False

    def pwrite(descriptor: int, data: Any, offset: int) -> int:
        if closing:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data, offset)

    def write() -> None:
        nonlocal closing
        with atomic_hdf5(target) as file:
            file["a"] = np.arange(1000.0)
            closing = True

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(UnsupportedError, match="disk full"):
        write()
    assert os.listdir(tmp_path) == []


def test_a_disk_that_takes_a_part_of_a_block_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(
        os, "pwrite", lambda descriptor, data, offset: real(descriptor, data[:100], offset)
    )
    values = np.arange(5000.0)
    with atomic_hdf5(tmp_path / "a.h5") as file:
        file["a"] = values
    with h5py.File(tmp_path / "a.h5") as file:
        np.testing.assert_array_equal(file["a"][:], values)


def test_the_disk_begins_with_long_writes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _, start, n, what: begun.append((start, n)))
    values = np.random.default_rng(0).random(1 << 18)
    with atomic_hdf5(tmp_path / "long.h5") as file:
        file.create_dataset("u", data=values)
        file.create_dataset("few", data=values[:10])
    assert [n for _, n in begun] == [values.nbytes]
    with h5py.File(tmp_path / "long.h5", "r") as file:
        assert begun[0][0] == file["u"].id.get_offset()
        np.testing.assert_array_equal(file["u"], values)
