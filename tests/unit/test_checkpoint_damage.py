from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import xxhash

from tests.support.checkpoint_samples import (
    SHAPES,
    awkward_field,
    bits,
    make_problem,
    make_state,
    reader,
    whole,
)
from tetris_sim.errors import CheckpointError, UnsupportedError
from tetris_sim.outputs.checkpoint import open_checkpoint, seal, write_checkpoint
from tetris_sim.outputs.checkpoint.seal import read_seal

FOOTER = 512
PROBLEM = make_problem(SHAPES[3], n_fields=2)


@pytest.fixture(params=[1 << 26, 4096], ids=["one piece", "many pieces"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(seal, "_PIECE", request.param)
    monkeypatch.setattr(seal, "_READ", 48)
    written = write_checkpoint(
        tmp_path, make_state(PROBLEM), PROBLEM, reader(awkward_field(PROBLEM)), keep=1
    )
    assert (read_seal(written).n_pieces > 3) == (request.param == 4096)
    return written


def _refusal(path: Path) -> str:
    """The message of the CheckpointError; any other exception, and none, fails the test."""
    with pytest.raises(CheckpointError) as raised:
        open_checkpoint(path)
    assert str(path) in str(raised.value)
    assert str(raised.value).endswith(".")
    return str(raised.value)


def test_the_undamaged_file_opens(path: Path) -> None:
    with open_checkpoint(path) as checkpoint:
        assert np.array_equal(bits(checkpoint.read(whole(PROBLEM))), bits(awkward_field(PROBLEM)))


def test_the_seal_can_be_checked_with_nothing_but_the_page_on_the_file_format(path: Path) -> None:
    content = path.read_bytes()
    line, proof = content[-512:-65], content[-65:]
    assert hashlib.sha256(line).hexdigest().encode() + b"\n" == proof
    said = json.loads(line)
    end, piece = said["content_bytes"], said["piece_bytes"]
    digests = [
        xxhash.xxh3_128(content[start : min(start + piece, end)]).digest()
        for start in range(0, end, piece)
    ]
    assert content[end:-512] == b"".join(digests)
    assert said["table"] == hashlib.sha256(b"".join(digests)).hexdigest()
    assert said["digest"] == "xxh3_128"
    assert (said["kind"], said["format_version"], said["good"], said["step"]) == (
        "tetris_sim checkpoint",
        3,
        True,
        120,
    )


def test_a_flipped_bit_is_found_wherever_it_is(path: Path, rng: np.random.Generator) -> None:
    content = bytearray(path.read_bytes())
    places = {
        *rng.integers(0, len(content), 700).tolist(),
        *range(len(content) - FOOTER, len(content), 3),
    }
    for place in places:
        bit = 1 << int(rng.integers(8))
        content[place] ^= bit
        path.write_bytes(content)
        _refusal(path)
        content[place] ^= bit


def test_the_message_says_where_the_damage_is(path: Path, rng: np.random.Generator) -> None:
    content = bytearray(path.read_bytes())
    seal = read_seal(path)
    for place in rng.integers(0, seal.content_bytes, 20).tolist():
        content[place] ^= 1
        path.write_bytes(content)
        start = place // seal.piece_bytes * seal.piece_bytes
        stop = min(start + seal.piece_bytes, seal.content_bytes)
        assert f"something among its bytes {start} to {stop - 1} has changed" in _refusal(path)
        content[place] ^= 1


def test_damage_to_the_digests_is_told_from_damage_to_what_they_prove(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[read_seal(path).content_bytes + 5] ^= 1
    path.write_bytes(content)
    assert "the digests at its end are not those that were written" in _refusal(path)


def test_a_file_cut_off_anywhere_is_found(path: Path, rng: np.random.Generator) -> None:
    content = path.read_bytes()
    lengths = {0, 1, FOOTER - 1, FOOTER, len(content) - FOOTER, len(content) - 1}
    for length in {*lengths, *rng.integers(0, len(content), 200).tolist()}:
        path.write_bytes(content[:length])
        _refusal(path)


def test_bytes_lost_or_added_in_the_middle_are_found(path: Path, rng: np.random.Generator) -> None:
    content = path.read_bytes()
    for place in rng.integers(0, len(content), 50).tolist():
        path.write_bytes(content[:place] + content[place + 1 :])
        _refusal(path)
        path.write_bytes(content[:place] + b"\0" + content[place:])
        _refusal(path)
    path.write_bytes(content + b"\0")
    _refusal(path)


def test_pages_lost_by_the_disk_are_found(path: Path) -> None:
    content = path.read_bytes()
    for place in range(0, len(content), 4096):
        path.write_bytes(
            content[:place] + bytes(min(4096, len(content) - place)) + content[place + 4096 :]
        )
        _refusal(path)


def test_pieces_that_changed_places_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal, "_PIECE", 1024)
    path = write_checkpoint(
        tmp_path, make_state(PROBLEM), PROBLEM, reader(awkward_field(PROBLEM)), keep=1
    )
    content = path.read_bytes()
    path.write_bytes(content[1024:2048] + content[:1024] + content[2048:])
    assert "bytes 0 to 1023" in _refusal(path)


def test_the_end_of_another_checkpoint_does_not_fit(tmp_path: Path) -> None:
    first = write_checkpoint(
        tmp_path, make_state(PROBLEM, 1), PROBLEM, reader(awkward_field(PROBLEM, 1)), keep=9
    )
    second = write_checkpoint(
        tmp_path, make_state(PROBLEM, 2), PROBLEM, reader(awkward_field(PROBLEM, 2)), keep=9
    )
    assert first.stat().st_size == second.stat().st_size
    end = read_seal(first).content_bytes
    first.write_bytes(first.read_bytes()[:end] + second.read_bytes()[end:])
    assert "has changed" in _refusal(first)


@pytest.mark.parametrize("length", [1, 100, FOOTER, 5000])
def test_other_kinds_of_files_are_refused(
    tmp_path: Path, rng: np.random.Generator, length: int
) -> None:
    path = tmp_path / "file.h5"
    path.write_bytes(rng.bytes(length))
    assert "is not a checkpoint" in _refusal(path)
    path.write_text("tetris_sim checkpoint " * 100)
    _refusal(path)
    with h5py.File(path, "w") as file:
        file["u"] = np.arange(length)
    assert "is not a checkpoint" in _refusal(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert "is not there" in _refusal(tmp_path / "missing.h5")
    assert "cannot be read: Is a directory" in _refusal(tmp_path)


def _reseal(path: Path, line: dict[str, object] | list[object]) -> None:
    """Give the file a footer that is right in itself."""
    text = json.dumps(line).encode().ljust(FOOTER - 65)
    path.write_bytes(path.read_bytes()[:-FOOTER] + seal._with_digest(text))


def test_a_later_format_asks_for_a_newer_program(path: Path) -> None:
    line = dataclasses.asdict(read_seal(path))
    _reseal(path, line | {"format_version": 4, "what later versions say": [1, 2]})
    assert (
        "has checkpoint format 4, and this version of tetris_sim reads formats up to 3"
        in _refusal(path)
    )
    _reseal(path, line)
    open_checkpoint(path).close()


def test_a_seal_without_sense_is_refused(path: Path) -> None:
    line = dataclasses.asdict(read_seal(path))
    for nonsense in (
        {"content_bytes": 10**30},
        {"content_bytes": -5},
        {"content_bytes": None},
        {"piece_bytes": 0},
        {"piece_bytes": 1},
        {"format_version": "one"},
        {"kind": "tetris_sim checkpoint?"},
        {"more": 1},
        {"digest": "md5"},
    ):
        _reseal(path, line | nonsense)
        _refusal(path)
    _reseal(path, ["tetris_sim checkpoint"])
    _refusal(path)


def _with_sha256(path: Path) -> None:
    """Seal it as formats 1 and 2 were."""
    end = read_seal(path).content_bytes
    path.write_bytes(path.read_bytes()[:end])
    seal.append_seal(path, step=120, good=True, digest="sha256")
    line = dataclasses.asdict(read_seal(path)) | {"format_version": 1}
    del line["digest"]
    _reseal(path, line)


def test_earlier_files_are_read_and_every_byte_is_compared(path: Path) -> None:
    _with_sha256(path)
    assert read_seal(path).digest == "sha256"
    with open_checkpoint(path) as checkpoint:
        assert np.array_equal(bits(checkpoint.read(whole(PROBLEM))), bits(awkward_field(PROBLEM)))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 2
    path.write_bytes(content)
    assert "has changed" in _refusal(path)


def test_without_xxhash_files_are_sealed_with_sha256_and_others_not_called_damaged(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "xxhash" else find(name)
    )
    with pytest.raises(UnsupportedError, match="pip install xxhash"):
        open_checkpoint(path)
    other = tmp_path / "other"
    other.write_bytes(b"content")
    _sealed(other)
    assert read_seal(other).digest == "sha256"
    seal.check_content(other, read_seal(other))


def _sealed(path: Path) -> None:
    seal.append_seal(path, step=1, good=True)


def test_a_sealed_file_without_the_right_contents_is_refused(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    path = tmp_path / "checkpoint_000000000001.h5"
    path.write_bytes(rng.bytes(3000))
    _sealed(path)
    assert "damaged" in _refusal(path)
    with h5py.File(path, "w") as file:
        file["u"] = np.arange(12)
    _sealed(path)
    assert "damaged" in _refusal(path)


@pytest.mark.parametrize(
    "removed", ["meta", "meta/config", "fields", "fields/u1", "fields/x", "meta/methods"]
)
def test_a_sealed_file_with_a_missing_part_is_refused(path: Path, removed: str) -> None:
    with h5py.File(path, "r+") as file:
        del file[removed]
    _sealed(path)
    assert "damaged" in _refusal(path)


@pytest.mark.parametrize("name", ["step", "dt", "run_id", "versions", "variables"])
def test_a_sealed_file_with_a_missing_or_odd_attribute_is_refused(path: Path, name: str) -> None:
    with h5py.File(path, "r+") as file:
        file["meta"].attrs[name] = np.array([[1, 2], [3, 4]])
    _sealed(path)
    _refusal(path)
    with h5py.File(path, "r+") as file:
        del file["meta"].attrs[name]
    _sealed(path)
    _refusal(path)


def test_without_verification_only_the_end_is_looked_at(path: Path) -> None:
    content = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        place = file["fields/u1"].id.get_offset() + 8
    content[place] ^= 1
    path.write_bytes(content)
    _refusal(path)
    with open_checkpoint(path, verify=False) as checkpoint:
        values = bits(checkpoint.read(whole(PROBLEM)))
    assert np.count_nonzero(values != bits(awkward_field(PROBLEM))) == 1
    path.write_bytes(content[:-1])
    with pytest.raises(CheckpointError):
        open_checkpoint(path, verify=False)
