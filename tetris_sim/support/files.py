"""Atomic files: written under a temporary name, flushed to disk and renamed into place.

Whatever goes wrong while a file is written (a full disk, a kill, an exception), the previous file
stays intact. An error of the disk becomes an `UnsupportedError` that names the file and the free
space. Below are the folders of the cache, in which compiled kernels and measurements are kept.
"""

from __future__ import annotations

import atexit
import contextlib
import csv
import errno
import fcntl
import functools
import hashlib
import importlib.util
import io
import logging
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import platformdirs

from tetris_sim.errors import UnsupportedError
from tetris_sim.support.wording import first_line

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


# The cache folder, in which compiled kernels and measurements are kept between runs.
#
# The folder contains code that is executed, and Numba's index of it is a pickle, so a folder that
# other users may have written to is never used (`why_not_kept`).

log = logging.getLogger("tetris_sim")

_LEAST_FREE = 32 << 20  # bytes that a disk must have free for compiled code to be kept there


def caching() -> bool:
    """Whether anything may be cached: not if TETRIS_SIM_NO_CACHE is set to a value other than 0."""
    return os.environ.get("TETRIS_SIM_NO_CACHE", "0") in ("", "0")


def cache_directory(part: str) -> Path:
    """The folder for one kind of cached data, created if it is missing.

    This is TETRIS_SIM_CACHE_DIR or the user's cache folder. A temporary folder, removed with the
    process, is used instead if caching is off, or if the folder is not writable (a read-only home
    must not stop a run) or is writable by others.

    Args:
        part: name of the kind, for example "kernels".
    """
    if caching():
        directory = _lasting_directory(part)
        with contextlib.suppress(OSError):
            _make_private(directory / "__pycache__")
        if (reason := why_not_kept(part)) is None:
            return directory
        _warn_once(reason)
    return _temporary_part(part)


def _temporary_part(part: str) -> Path:
    directory = _temporary_directory() / part
    directory.mkdir(exist_ok=True)
    return directory


def _make_private(directory: Path) -> None:
    """Make a folder and those above it for this user only, whatever umask says: others can neither
    read nor replace what is executed.
    """
    for folder in (*reversed(directory.parents), directory):
        if not folder.exists():
            with contextlib.suppress(FileExistsError):  # another process was faster
                folder.mkdir(mode=0o700)
    _close_files(directory.parent)


@functools.cache
def _close_files(directory: Path) -> None:
    """Let only this user read and write the files of a cache folder; again when the process ends,
    since Numba writes files of its own.
    """

    def close() -> None:
        for path in (*directory.glob("*"), *directory.glob("__pycache__/*")):
            with contextlib.suppress(OSError):
                it = path.lstat()
                if stat.S_ISREG(it.st_mode) and it.st_uid == os.getuid() and it.st_mode & 0o077:
                    path.chmod(0o600)

    if hasattr(os, "getuid"):
        close()
        atexit.register(close)


def why_not_kept(part: str) -> str | None:
    """The reason why the persistent folder is not used, as the beginning of a sentence; None if it
    is used.
    """
    directory = _lasting_directory(part)
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"{directory.parent} cannot be written to"
    if shutil.disk_usage(directory).free < _LEAST_FREE:
        return f"the disk of {directory.parent} is full"
    if not hasattr(os, "getuid"):  # Windows keeps the user's folders from others by itself
        return None
    for folder in (directory, directory / "__pycache__"):
        if folder.exists() and not _is_ours(folder.stat()):
            return f"{folder} belongs to another user or may be written to by others"
    return None


def _is_ours(it: os.stat_result) -> bool:
    """Whether only this user and root can have written the file."""
    return it.st_uid in (0, os.getuid()) and not it.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _drop_foreign(directory: Path, name: str) -> None:
    """Remove the files of a module that other users may have put into a folder of ours.

    If others cannot enter the folder, it suffices that a file belongs to this user.
    """
    sheltered = not directory.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    for path in (directory / f"{name}.py", *(directory / "__pycache__").glob(f"{name}.*")):
        with contextlib.suppress(FileNotFoundError):
            # A symbolic link is not followed: it could lead to a file of this user elsewhere.
            it = path.lstat()
            ours = it.st_uid == os.getuid() if sheltered else _is_ours(it)
            if not (stat.S_ISREG(it.st_mode) and ours):
                path.unlink()


def _lasting_directory(part: str) -> Path:
    return (
        Path(os.environ.get("TETRIS_SIM_CACHE_DIR") or platformdirs.user_cache_dir("tetris_sim"))
        / part
    )


def digest_of(files: Iterable[Path]) -> str:
    """A digest of names and contents: the key of something that is made of these files."""
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


_IMPORTING = threading.Lock()


@functools.cache
def generated_module(source: str, *, part: str, salt: str = "") -> ModuleType:
    """Import a source text as a module in the cache folder, where Numba stores the compiled code.

    Args:
        source: Python source, which is executed.
        part: as for `cache_directory`.
        salt: everything else that the compiled code depends on, for example the source of functions
            that it calls.
    """
    with _IMPORTING:  # two threads may want the same kernel at once
        return _import_generated(source, part, salt)


def _import_generated(source: str, part: str, salt: str) -> ModuleType:
    # Equal sources share a module, whichever process writes it first.
    digest = hashlib.sha256((source + salt).encode()).hexdigest()[:24]
    name = f"tetris_sim_{part}_{digest}"
    path = cache_directory(part) / f"{name}.py"
    try:
        with _lock(path.with_suffix(".lock")):
            return _import_from(path, name, source)
    except UnsupportedError as error:  # a quota, or a disk that has just filled up
        _warn_once(first_line(error))
        return _import_from(_temporary_part(part) / f"{name}.py", name, source)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Keep other processes from compiling the same module meanwhile: they find it compiled then.

    Where a file cannot be locked (some network file systems), both compile it.
    """
    with contextlib.ExitStack() as held:
        with contextlib.suppress(OSError):
            ours = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            file = held.enter_context(open(os.open(path, ours, 0o600), "a"))
            fcntl.flock(file, fcntl.LOCK_EX)  # given back when the file is closed
        yield


def _import_from(path: Path, name: str, source: str) -> ModuleType:
    if hasattr(os, "getuid"):
        _drop_foreign(path.parent, name)
    if not path.exists() or path.read_text() != source:
        atomic_text(path, source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # noqa: PT018  a path ending in .py always has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Numba looks the module of a cached function up by name
    spec.loader.exec_module(module)
    return module


@functools.cache
def _warn_once(reason: str) -> None:
    log.warning("%s, so what is compiled is not kept. Set TETRIS_SIM_CACHE_DIR.", reason)


@functools.cache
def _temporary_directory() -> Path:
    path = Path(tempfile.mkdtemp(prefix="tetris_sim_"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


# Tables of text, as spreadsheets, loggers and simulators write them.

_COMMA = re.compile(r"^(\s*[+-]?[0-9]+),([0-9]+(?:[eE][+-]?[0-9]+)?\s*)$")  # a decimal one


def table_lines(read: bytes) -> list[list[str]]:
    r"""The lines of a table without empty ones and comments, divided at what divides the last one:
    semicolons, as spreadsheets write where numbers have a decimal comma, tabs, commas or blanks.

    >>> table_lines(b"time [s];power [W]\n0;0,5\n")
    [['time [s]', 'power [W]'], ['0', '0.5']]
    >>> table_lines(b"core0 core1\n1.5 2\n")
    [['core0', 'core1'], ['1.5', '2']]
    """
    try:
        # utf-8-sig: spreadsheets put a byte order mark in front of CSV files.
        text = read.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = read.decode("cp1252")  # those of Windows; names of columns alone have such letters
    given = [it for it in text.splitlines(keepends=True) if it.strip()]
    while given and given[0].lstrip().startswith("#"):
        del given[0]
    mark = next((it for it in ";\t," if given and it in given[-1]), " ")
    if mark == " ":
        # A unit belongs to the name before it.
        return [re.split(r"\s+(?!\[)", it.strip()) for it in given]

    lines = [it for it in csv.reader(given, delimiter=mark) if any(map(str.strip, it))]
    return lines if mark == "," else [[_COMMA.sub(r"\1.\2", it) for it in line] for line in lines]
