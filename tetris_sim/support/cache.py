"""The cache folder, in which compiled kernels and measurements are kept between runs.

The folder contains code that is executed, and Numba's index of it is a pickle, so a folder that
other users may have written to is never used (`why_not_kept`).
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import logging
import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

import platformdirs

from tetris_sim.errors import UnsupportedError
from tetris_sim.support.files import atomic_text
from tetris_sim.support.wording import first_line

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
