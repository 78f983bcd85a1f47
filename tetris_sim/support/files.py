"""Atomic files: written under a temporary name, flushed to disk and renamed into place.

Whatever goes wrong while a file is written (a full disk, a kill, an exception), the previous file
stays intact. An error of the disk becomes an `UnsupportedError` that names the file and the free
space.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from tetris_sim.errors import UnsupportedError

PART = ".part"  # ends the name of every file that is not finished
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (*_FULL, errno.EROFS, errno.EIO)
_LONG = 1 << 20  # bytes of a write from which on it is flushed at once


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`, which is renamed to `path` if the block ends without
    an error.

    For HDF5 use `atomic_hdf5`: the HDF5 library may crash the process on a full disk.

    Raises:
        UnsupportedError: the disk is full or not writable.
    """
    path = Path(path)
    part = unfinished_name(path)
    try:
        yield part
        put_in_place(part, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        # Only errors of this file are translated; others may come from anything in the block.
        if isinstance(error, OSError) and _is_about(error, part):
            raise UnsupportedError(_refusal(error, path)) from error
        raise


def unfinished_name(path: Path) -> Path:
    """A temporary name next to `path` that no other process uses."""
    return path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}{PART}")


def put_in_place(part: Path, path: Path) -> None:
    """Rename a finished file to its final name, after its content is on disk."""
    # Without this order, a power cut could leave the new name with incomplete content.
    with part.open("rb+") as written:
        os.fsync(written.fileno())
    part.replace(path)
    sync_directory(path.parent)


@contextlib.contextmanager
def open_given(path: Path) -> Iterator[BinaryIO]:
    """Open a file from an untrusted source; pipes and devices, which may never end, are refused.

    Raises:
        OSError: it cannot be opened, or is not a regular file.
    """
    # O_NONBLOCK: opening a pipe without a writer would block before the check.
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        yield file


def read_given(path: Path, most: int) -> bytes:
    """Content of a file from an untrusted source, of at most `most` bytes.

    Raises:
        OSError: it cannot be read, is not a regular file, or is longer.
    """
    with open_given(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return content


def atomic_text(path: Path, text: str) -> None:
    """Write a text file (UTF-8) atomically."""
    with atomic_file(path) as part:
        part.write_text(text, encoding="utf-8")


def atomic_bytes(path: Path, content: bytes) -> None:
    """Write a binary file atomically."""
    with atomic_file(path) as part:
        part.write_bytes(content)


@contextlib.contextmanager
def atomic_hdf5(path: Path) -> Iterator[Any]:
    """Yield a new `h5py.File` that becomes `path` if the block ends without an error, as in
    `atomic_file`.

    Raises:
        UnsupportedError: the disk is full or not writable.
    """
    with atomic_file(path) as part, new_hdf5(part) as file:
        yield file


@contextlib.contextmanager
def new_hdf5(path: Path) -> Iterator[Any]:
    """Yield a new `h5py.File`; an error of the disk is raised after HDF5 has closed all objects.

    HDF5 1.14 and 2.0 cannot recover from a failed write: objects stay open, and the process may
    crash with a segmentation fault when it ends. So HDF5 writes to a file object that stores the
    first error until HDF5 has closed everything. It is as fast as HDF5's own driver.
    """
    import h5py

    with _Unfailing(path) as unfailing:
        # The format of HDF5 1.10, which virtual datasets need.
        try:
            with h5py.File(unfailing, "w", libver=("earliest", "v110")) as file:
                yield file
        finally:
            if unfailing.error is not None:
                raise unfailing.error


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an `OSError` about writing `path` into an `UnsupportedError`."""
    try:
        yield
    except OSError as error:
        if not _is_about(error, Path(path)):
            raise
        raise UnsupportedError(_refusal(error, Path(path))) from error


def make_directory(directory: Path) -> None:
    """Create a directory and its parents.

    Raises:
        UnsupportedError: that is not possible.
    """
    with disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)


def write_at(descriptor: int, data: Any, offset: int) -> None:
    """Write a contiguous buffer completely at an offset of a file.

    Raises:
        OSError: the disk is full or fails.
    """
    view, done = memoryview(data).cast("B"), 0
    # A nearly full disk may accept a part of the data without an error.
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], offset + done)


def send_to_disk(descriptor: int, offset: int, length: int) -> None:
    """Start to flush a range of a file to disk, if it is large enough [bytes].

    By itself, Linux keeps gigabytes in memory and starts to write when a process waits for them:
    the disk then idles while memory is filled, and memory is not filled while the disk writes.
    """
    if length >= _LONG and hasattr(os, "posix_fadvise"):
        # For pages not yet on disk, this advice starts to write them.
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


def sync_directory(directory: Path) -> None:
    """Make renames inside `directory` survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot sync a directory
            raise
    finally:
        os.close(descriptor)


def remove_parts(directory: Path, start: str = "") -> None:
    """Remove unfinished files of killed processes; no other process may be writing there.

    Args:
        directory: directory to search.
        start: prefix of the names to remove.
    """
    for part in directory.glob(f"{start}*{PART}"):
        remove_file(part)


def remove_file(path: Path) -> None:
    """Remove a file, if it is there.

    Raises:
        UnsupportedError: that is not possible.
    """
    with disk_errors(path):
        path.unlink(missing_ok=True)


def _is_about(error: OSError, path: Path) -> bool:
    # Errors of writing carry no file name, so the error number decides; others must name the file.
    return error.errno in _REFUSED or (
        error.filename is not None and Path(str(error.filename)) == path
    )


def _refusal(error: OSError, path: Path) -> str:
    if error.errno not in _FULL:
        return f"{path} cannot be written: {error.strerror}. Choose a place that may be written to."
    place = next(parent for parent in path.absolute().parents if parent.exists())
    reason = (
        "it would be larger than this process may write (ulimit -f)"
        if error.errno == errno.EFBIG
        else "disk full"
    )
    return (
        f"{path} cannot be written: {reason}; {shutil.disk_usage(place).free} bytes are free in "
        f"{place}. Free some space or write to a larger disk; what was written before is whole."
    )


class _Unfailing(io.RawIOBase):
    """A file that keeps the first error of a write to itself, and pretends from then on."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._position = 0
        self.error: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = (0, self._position, os.fstat(self._descriptor).st_size)[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        n = os.preadv(self._descriptor, [buffer], self._position)
        self._position += n
        return n

    def write(self, data: Any) -> int:
        length = memoryview(data).nbytes
        try:
            if self.error is None:
                write_at(self._descriptor, data, self._position)
                send_to_disk(self._descriptor, self._position, length)
        except OSError as error:
            self.error = error
        self._position += length
        return length

    def truncate(self, size: int | None = None) -> int:
        length = self._position if size is None else size
        try:
            if self.error is None:
                os.ftruncate(self._descriptor, length)
        except OSError as error:
            self.error = error
        return length

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            os.close(self._descriptor)
        super().close()
