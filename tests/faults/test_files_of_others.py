"""Files that somebody else made: they lead to no other file, and start no program."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from tetris_sim.apps.initial_file import open_hdf5, read_grey
from tetris_sim.errors import CheckpointError, ConfigError
from tetris_sim.model.grid import Grid
from tetris_sim.outputs.series import open_fields
from tetris_sim.support.hdf5 import OutsideError, refuse_outside

GRID = Grid((4, 5), (1.0, 1.0), (0.0, 0.0))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Numbers in a folder that nobody was told of."""
    folder = tmp_path / "secret"
    folder.mkdir()
    path = folder / "secret.h5"
    with h5py.File(path, "w") as file:
        file["u"] = np.ones((4, 5))
    return path


def leading(way: str, folder: Path, target: Path) -> Path:
    """A file whose dataset "u" is that of another one."""
    folder.mkdir(exist_ok=True)
    path = folder / "given.h5"
    with h5py.File(path, "w") as file:
        match way:
            case "external link":
                file.create_group("deep")["u"] = h5py.ExternalLink(str(target), "u")
                file["u"] = np.zeros((4, 5))
            case "virtual dataset":
                layout = h5py.VirtualLayout((4, 5), float)
                layout[:] = h5py.VirtualSource(str(target), "u", (4, 5))
                file.create_virtual_dataset("u", layout)
            case "external storage":
                file.create_dataset("u", (4, 5), float, external=[(str(target), 0, 160)])
            case "link in a link":
                middle = leading("external link", folder / "below", target)
                file["u"] = h5py.ExternalLink(f"below/{middle.name}", "u")
    return path


@pytest.mark.parametrize(
    "way", ["external link", "virtual dataset", "external storage", "link in a link"]
)
def test_files_elsewhere_are_not_read(way: str, secret: Path, tmp_path: Path) -> None:
    path = leading(way, tmp_path / "mine", secret)
    with pytest.raises(ConfigError, match=r"initial\.path: .*which is not in its folder"):
        open_hdf5(path, "u", GRID, "initial.path")

    closer = leading(way, tmp_path / "mine", Path(os.path.relpath(secret, tmp_path / "mine")))
    with pytest.raises(OutsideError, match=r"refers to \.\./"):
        refuse_outside(closer)


@pytest.mark.parametrize("way", ["external link", "virtual dataset"])
def test_files_beside_are_read(way: str, secret: Path) -> None:
    path = leading(way, secret.parent, Path(secret.name))
    read = open_hdf5(path, "u", GRID, "initial.path")
    assert read(((0, 4), (0, 5))).shape == (4, 5)


def test_groups_that_contain_themselves_end(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "ring.h5", "w") as file:
        file.create_group("a")["again"] = file["/"]
    refuse_outside(tmp_path / "ring.h5")


def test_an_index_of_fields_of_others_is_refused(secret: Path, tmp_path: Path) -> None:
    path = leading("virtual dataset", tmp_path / "mine", secret)
    with h5py.File(path, "a") as file:
        file.attrs.update({"format": "tetris_sim fields", "format_version": 1})
    with pytest.raises(CheckpointError), open_fields(path):
        pass


def test_no_picture_starts_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = tmp_path / "started"
    script = tmp_path / "gs"
    script.write_text(f"#!/bin/sh\ntouch {started}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    path = tmp_path / "picture.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 4\n%%EndComments\nshowpage\n")
    with pytest.raises(ConfigError, match="greyscale picture"):
        read_grey(path, GRID, "initial.path")
    assert not started.exists()


def test_pictures_of_another_size_are_not_decoded(tmp_path: Path) -> None:
    Image.new("L", (300, 200)).save(tmp_path / "large.png")
    whole = (tmp_path / "large.png").read_bytes()
    (tmp_path / "large.png").write_bytes(whole[:60])  # decoding would find it damaged
    with pytest.raises(ConfigError, match=r"shape \(200, 300\)"):
        read_grey(tmp_path / "large.png", GRID, "initial.path")
