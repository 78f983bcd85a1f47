"""Seal: proof that no byte of a file has changed since it was written.

A sealed file is its content, followed by the seal:

    content | digest of each piece of 64 MiB of the content | footer of 512 bytes

The content is HDF5, whose readers begin at the start of a file and never beyond its own end. The
footer is a line of JSON, padded with spaces, and the SHA-256 of that line. It is checked before
anything is trusted, then the length of the file, then the digests, and only a file that passes is
shown to the HDF5 library, which can crash or loop on damaged input. Several threads digest pieces,
so that a fast disk is not slowed down.

The footer names the digest of the pieces: XXH3 of 128 bits (https://xxhash.com), ten times as fast
as SHA-256, which stands in files that were written before or where xxhash is not installed. A seal
proves that a disk has kept what was written to it; it is not a signature.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tetris_sim.errors import CheckpointError, UnsupportedError
from tetris_sim.support import usable_cores
from tetris_sim.support.files import open_given

# The highest version that is read. Version 2 has its values in files next to it; in version 3 the
# seal names its digest.
FORMAT_VERSION = 3
_KIND = "tetris_sim checkpoint"
_FOOTER = 512
_PIECE = 1 << 26
_READ = 1 << 20  # bytes held in memory per thread
_SHA256 = hashlib.sha256().digest_size
_DIGEST_BYTES = {"xxh3_128": 16, "sha256": _SHA256}  # by name, of the digests that are known
_REMEDY = "Continue from another checkpoint of the run"


@dataclass(frozen=True)
class Seal:
    """Content of the footer of a sealed file.

    Attributes:
        kind: "tetris_sim checkpoint".
        format_version: version of the footer and of the content.
        good: whether the state passed the check for NaN and infinity; False for a crash dump.
        step: step of the state.
        content_bytes: length of the content.
        piece_bytes: length of each digested piece but the last.
        table: SHA-256 of the digests of the pieces, in hexadecimal.
        digest: name of the pieces' digest; files of formats 1 and 2 do not name it.
    """

    kind: str
    format_version: int
    good: bool
    step: int
    content_bytes: int
    piece_bytes: int
    table: str
    digest: str = "sha256"

    @property
    def n_pieces(self) -> int:
        """Number of pieces, and of digests."""
        return -(-self.content_bytes // self.piece_bytes)

    @property
    def file_bytes(self) -> int:
        """Length of the whole file."""
        return self.content_bytes + self.table_bytes + _FOOTER

    @property
    def table_bytes(self) -> int:
        """Length of all digests."""
        return self.n_pieces * _DIGEST_BYTES[self.digest]


def fastest_digest() -> str:
    """The digest of new files: XXH3, or SHA-256 where xxhash is not installed."""
    return "sha256" if importlib.util.find_spec("xxhash") is None else "xxh3_128"


def append_seal(path: Path, *, step: int, good: bool, digest: str | None = None) -> None:
    """Seal a finished file; it is read back for that, so that what is sealed is readable.

    Args:
        path: the file.
        step: step of the state in it.
        good: whether the state is finite everywhere.
        digest: name of the pieces' digest; the fastest one if not given.

    Raises:
        OSError: the file cannot be read or written.
    """
    digest = digest or fastest_digest()
    with path.open("rb+") as file:
        size = file.seek(0, os.SEEK_END)
        # One thread: this runs next to the computation, which needs the others.
        digests = b"".join(_digest_pieces(file.fileno(), size, _PIECE, digest, threads=1))

        seal = Seal(
            kind=_KIND,
            format_version=FORMAT_VERSION,
            good=good,
            step=step,
            content_bytes=size,
            piece_bytes=_PIECE,
            table=hashlib.sha256(digests).hexdigest(),
            digest=digest,
        )
        file.write(digests + _footer(seal))


def read_seal(path: Path) -> Seal:
    """Read and check the footer and the length of a file, at a cost independent of its size.

    Raises:
        CheckpointError: the file is missing, cut off, damaged, of another kind or of a later
            format.
    """
    try:
        with open_given(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _FOOTER))
            footer = file.read(_FOOTER)
    except OSError as error:
        raise CheckpointError(_unreadable(path, error)) from error

    seal = _parse(path, footer, size)
    if size != seal.file_bytes:
        msg = (
            f"{path} is damaged: it has {size} bytes, and {seal.file_bytes} were written. "
            f"{_REMEDY}."
        )
        raise CheckpointError(msg)

    return seal


def check_content(path: Path, seal: Seal) -> None:
    """Compare every byte of the content with its digest.

    Raises:
        CheckpointError: a byte has changed or cannot be read.
        UnsupportedError: the file was sealed with xxhash, which is not installed here.
    """
    if seal.digest != "sha256" and fastest_digest() != seal.digest:
        msg = f"{path} is sealed with {seal.digest}, which needs xxhash: pip install xxhash"
        raise UnsupportedError(msg)
    # Unlike for sealing, the caller waits for the result, so several threads read.
    threads = min(8, len(usable_cores()))
    try:
        with open_given(path) as file:
            table = os.pread(file.fileno(), seal.table_bytes, seal.content_bytes)
            digests = _digest_pieces(
                file.fileno(), seal.content_bytes, seal.piece_bytes, seal.digest, threads=threads
            )
    except OSError as error:
        raise CheckpointError(_unreadable(path, error)) from error

    # The footer seals the table of digests, and the table seals the content.
    if hashlib.sha256(table).hexdigest() != seal.table:
        msg = (
            f"{path} is damaged: the digests at its end are not those that were written. {_REMEDY}."
        )
        raise CheckpointError(msg)

    width = _DIGEST_BYTES[seal.digest]
    for number, digest in enumerate(digests):
        if digest != table[number * width : (number + 1) * width]:
            start, stop = _piece(number, seal.content_bytes, seal.piece_bytes)
            msg = (
                f"{path} is damaged: something among its bytes {start} to {stop - 1} has changed. "
                f"{_REMEDY}."
            )
            raise CheckpointError(msg)


def _footer(seal: Seal) -> bytes:
    line = json.dumps(asdict(seal)).encode()
    # Padded to a fixed length, so that a reader finds it without knowing the content's length.
    return _with_digest(line.ljust(_FOOTER - 2 * _SHA256 - 2) + b" ")


def _with_digest(line: bytes) -> bytes:
    return line + hashlib.sha256(line).hexdigest().encode() + b"\n"


def _parse(path: Path, footer: bytes, size: int) -> Seal:
    if _KIND.encode() not in footer:
        msg = (
            f"{path}, {size} bytes long, is not a checkpoint, or its end is missing or damaged. "
            f"{_REMEDY}."
        )
        raise CheckpointError(msg)

    # The line ends where its own digest begins: 64 hexadecimal digits and a line break.
    line = footer[: _FOOTER - 2 * _SHA256 - 1]
    if _with_digest(line) != footer:
        msg = f"{path} is damaged: something among its last {_FOOTER} bytes has changed. {_REMEDY}."
        raise CheckpointError(msg)

    # The line is intact, but a later version may have written other keys or values.
    try:
        said = json.loads(line)
        version = int(said["format_version"])
        if version > FORMAT_VERSION:
            msg = (
                f"{path} has checkpoint format {version}, and this version of tetris_sim reads "
                f"formats up to {FORMAT_VERSION}. Use a newer tetris_sim."
            )
            raise CheckpointError(msg)
        seal = Seal(**said)
        known = seal.kind == _KIND and seal.digest in _DIGEST_BYTES
        if known and min(seal.content_bytes, seal.piece_bytes) > 0:
            return seal
    except (KeyError, TypeError, ValueError):
        pass

    msg = (
        f"{path} was not written by tetris_sim: its last {_FOOTER} bytes make no sense. {_REMEDY}."
    )
    raise CheckpointError(msg)


def _digest_pieces(
    descriptor: int, size: int, piece: int, digest: str, *, threads: int
) -> Sequence[bytes]:
    # Pieces are independent, so their digests can be computed in any order.
    pieces = [_piece(number, size, piece) for number in range(-(-size // piece))]
    with ThreadPoolExecutor(max_workers=threads) as pool:
        return list(pool.map(lambda part: _digest(_new(digest), descriptor, *part), pieces))


def _piece(number: int, size: int, piece: int) -> tuple[int, int]:
    return number * piece, min((number + 1) * piece, size)


def _digest(digest: Any, descriptor: int, start: int, stop: int) -> bytes:
    # pread does not move the file's position, so threads share one descriptor.
    buffer = memoryview(bytearray(min(_READ, stop - start)))
    while start < stop:
        n = os.preadv(descriptor, [buffer[: stop - start]], start)
        if n == 0:
            break  # truncated since its length was read: the digest will not match
        digest.update(buffer[:n])
        start += n
    found: bytes = digest.digest()
    return found


def _new(digest: str) -> Any:
    if digest == "sha256":
        return hashlib.sha256()
    import xxhash

    return xxhash.xxh3_128()


def _unreadable(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{path} is not there. Give a checkpoint that a run has written."
    return f"{path} cannot be read: {error.strerror}. {_REMEDY}."
