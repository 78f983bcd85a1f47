"""Files that the HDF5 library does not come back from end in one sentence, soon."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.fault_runs import tetris_here
from tetris_sim.apps.initial_file import open_hdf5
from tetris_sim.errors import CheckpointError, ConfigError
from tetris_sim.model.grid import Grid
from tetris_sim.outputs.checkpoint import open_checkpoint, seal
from tetris_sim.outputs.series import open_fields
from tetris_sim.support import hdf5
from tetris_sim.support.hdf5 import OutsideError, refuse_outside

_HEADER = 16  # bytes of a heap of strings, and of each piece in it
ENDLESS = "the HDF5 library does not come to an end with it"


def endless(good: bytes, seed: int = 0) -> bytes:
    """One piece of a heap of strings is as long as it takes to come back to its own beginning."""
    heaps = [at for at in range(len(good)) if good.startswith(b"GCOL", at)]
    at = random.Random(seed).choice(heaps) + _HEADER
    return good[: at + 8] + struct.pack("<q", -_HEADER) + good[at + 16 :]


def counted_forks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Children as they come."""
    fork, children = os.fork, []

    def counted() -> int:
        child = fork()
        children.append(child)
        return child

    monkeypatch.setattr(os, "fork", counted)
    return children


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5, "_COMPUTING", 0.3)


@pytest.mark.parametrize("name", ["fields.h5", "fields/fields_000000000010.h5"])
def test_fields_that_never_end_are_refused(name: str, ended_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "fields.h5"
    path.write_bytes(endless((ended_run / name).read_bytes()))
    with pytest.raises(CheckpointError, match=f"fields.h5 is damaged: {ENDLESS}"):
        open_fields(path).__enter__()


def test_a_forged_seal_over_a_checkpoint_that_never_ends_is_refused(
    ended_run: Path, tmp_path: Path
) -> None:
    good = ended_run / "checkpoints" / "checkpoint_000000000020.h5"
    path = tmp_path / good.name
    path.write_bytes(endless(good.read_bytes()[: seal.read_seal(good).content_bytes]))
    seal.append_seal(path, step=20, good=True)
    with pytest.raises(CheckpointError, match=ENDLESS):
        open_checkpoint(path)
    done = tetris_here("restart", path, "--set", "time.steps=30")
    assert done.returncode not in (0, 1)
    assert len(done.stderr.splitlines()) == 1
    assert ENDLESS in done.stderr


@pytest.mark.parametrize("where", ["attribute", "values"])
def test_an_initial_field_that_never_ends_is_refused(where: str, tmp_path: Path) -> None:
    path = tmp_path / "given.h5"
    with h5py.File(path, "w") as file:
        file["u"] = np.zeros((4, 5))
        if where == "attribute":
            file["u"].attrs["said"] = "text"
        else:
            file["said"] = ["text"] * 3
    open_hdf5(path, "u", Grid((4, 5), (1.0, 1.0), (0.0, 0.0)), "initial.path")
    path.write_bytes(endless(path.read_bytes()))
    with pytest.raises(ConfigError, match=rf"initial\.path: .* \({ENDLESS}\)"):
        open_hdf5(path, "u", Grid((4, 5), (1.0, 1.0), (0.0, 0.0)), "initial.path")


def test_a_file_beside_that_never_ends_is_found(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "beside.h5", "w") as file:
        file.attrs["said"] = "text"
    with h5py.File(tmp_path / "given.h5", "w") as file:
        file["far"] = h5py.ExternalLink("beside.h5", "/")
    refuse_outside(tmp_path / "given.h5")
    (tmp_path / "beside.h5").write_bytes(endless((tmp_path / "beside.h5").read_bytes()))
    with pytest.raises(OutsideError, match=ENDLESS):
        refuse_outside(tmp_path / "given.h5")


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (lambda *_: os.kill(os.getpid(), signal.SIGSEGV), "ends the process .*, by SIGSEGV"),
        (lambda *_: os._exit(7), "ends the process .*, by exit code 7"),
        (lambda *_: time.sleep(60), "does not come to an end"),
    ],
    ids=["crash", "exit", "sleep"],
)
def test_what_ends_the_child_leaves_this_process_as_it_is(
    end: Callable[..., None], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path, rearm: Callable[[], None], seen: object) -> None:
        rearm()
        end()

    (tmp_path / "any.h5").touch()
    monkeypatch.setattr(hdf5, "_read_all", read)
    monkeypatch.setattr(hdf5, "_WAITING", 0.3)
    children = counted_forks(monkeypatch)
    before = os.listdir("/proc/self/fd")
    found: list[str] = []

    def look() -> None:
        with contextlib.suppress(OutsideError):
            refuse_outside(tmp_path / "any.h5")
        try:
            refuse_outside(tmp_path / "any.h5")
        except OutsideError as error:
            found.append(str(error))

    thread = threading.Thread(target=look)  # as the one that writes files beside a run
    thread.start()
    thread.join()
    (sentence,) = found
    assert sentence.startswith("the HDF5 library ")
    assert re.search(said, sentence)
    assert len(os.listdir("/proc/self/fd")) == len(before)
    for child in children:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)


def test_the_child_holds_no_file_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the lock of a results directory, which it would keep if the process were killed."""

    def read(path: Path, *_: object) -> None:
        found = []
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # that of the list itself
                found.append(os.readlink(f"/proc/self/fd/{number}"))
        raise OutsideError(" ".join(found))

    monkeypatch.setattr(hdf5, "_read_all", read)
    with (tmp_path / "held").open("w"), pytest.raises(OutsideError) as said:
        refuse_outside(tmp_path)
    found = str(said.value).split()
    assert [name for name in found if not name.startswith("pipe:")] == [os.devnull] * 3
    assert len(found) == 4


def test_a_child_that_is_left_alone_ends(tmp_path: Path) -> None:
    """It has nobody to tell anything, and is not to go on as a copy of the process."""
    script = (
        "import os, signal, sys, time\n"
        "from pathlib import Path\n"
        "from tetris_sim.support import hdf5\n"
        "def read(path, *_):\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    while os.getppid() == parent: time.sleep(0.001)\n"
        "hdf5._read_all, parent = read, os.getpid()\n"
        "try:\n"
        "    hdf5.refuse_outside(Path(sys.argv[1]))\n"
        "finally:\n"
        "    (Path(sys.argv[1]) / 'went on').touch()\n"
    )
    words = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
    assert done.returncode == -signal.SIGKILL
    time.sleep(0.3)  # the child has closed what it could be waited by
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_survived_is_looked_at_again_once_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, index = tmp_path / "given.h5", tmp_path / "index.h5"
    with h5py.File(path, "w") as file:
        file.attrs["said"] = "text"
    with h5py.File(index, "w") as file:
        file["far"] = h5py.ExternalLink("given.h5", "/")
    children = counted_forks(monkeypatch)
    for _ in range(3):
        refuse_outside(path)
        refuse_outside(index)  # always: what it refers to may have changed
    assert len(children) == 1 + 3

    path.write_bytes(endless(path.read_bytes()))
    for each in (path, index):
        with pytest.raises(OutsideError, match=ENDLESS):
            refuse_outside(each)


def test_large_datasets_are_followed_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("plain", (1 << 17,), float)
        file.create_dataset("deflated", (1 << 17,), float, chunks=(1 << 14,), compression="gzip")
        file.create_dataset("other", (1 << 17,), float, chunks=(1 << 14,), compression="lzf")
        file.create_dataset("texts", (1 << 13,), h5py.string_dtype())
    read: list[tuple[str, object]] = []

    class Watched(h5py.Dataset):  # type: ignore[misc]
        def __getitem__(self, key: object, new_dtype: object = None) -> object:
            read.append((self.name, key))
            return super().__getitem__(key)

    with h5py.File(path, "r") as file:
        for name in file:
            hdf5._read_values(Watched(file[name].id), lambda: None)
    ends = [(0,), ((1 << 17) - 1,)]
    assert [key for name, key in read if name == "/plain"] == ends
    assert [key for name, key in read if name == "/deflated"] == ends
    assert len([key for name, key in read if name == "/other"]) == 2 + 8
    assert [key for name, key in read if name == "/texts"] == [()]


def test_what_this_process_wrote_needs_no_child(
    ended_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "fork")
    with open_fields(ended_run / "fields.h5", ours=True) as series:
        assert series.steps == (0, 10, 20)
