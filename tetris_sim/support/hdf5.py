"""Compression of HDF5 datasets, and protection against HDF5 files from untrusted sources.

An HDF5 file may take its values from other files, by an external link, a virtual dataset or
external storage, which accepts any bytes as values. Files written by a run refer to files in their
own folder and below. A file that refers to others may have been made to disclose them, and is not
read.

The HDF5 library trusts the structure of a file, in C code: a damaged or forged file can cause an
infinite loop or crash the process. So a forked child first reads everything that a reader may need,
and only a file that the child survives is opened in this process
(docs/decisions/0033-files-of-others-in-a-child.md).
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import math
import os
import resource
import signal
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from tetris_sim.errors import UnsupportedError
from tetris_sim.support.wording import first_line, gib, printable

# Compression: lossless filters for values in HDF5 files.
#
# Filters built into HDF5 need nothing. LZ4 and Zstd need hdf5plugin for writing and for reading
# (docs/file-format.md).

# Filters that either return the original data or raise an error: deflate, shuffle, fletcher32, LZ4,
# Zstd. Blosc, which is faster, crashes the process on some damaged chunks.
TRUSTED = frozenset({1, 2, 3, 32004, 32015})
_INSTALL = "pip install 'tetris-sim[compression]'"


def packed(compression: str, chunk: tuple[int, ...]) -> dict[str, Any]:
    """Options of a compressed dataset with chunks of this shape.

    Args:
        compression: "gzip", "lz4" or "zstd".
        chunk: points per axis.

    Raises:
        UnsupportedError: hdf5plugin is needed but not installed.
    """
    options: dict[str, Any] = {"chunks": chunk, "shuffle": True}
    if compression == "gzip":
        # Level 1: nearly the size of level 9 on smooth fields in a fraction of the time; the
        # shuffle does the work.
        return options | {"compression": "gzip", "compression_opts": 1}
    refuse_missing(compression)
    import hdf5plugin

    packer: Any = hdf5plugin.LZ4() if compression == "lz4" else hdf5plugin.Zstd(clevel=1)
    return options | dict(packer)


def refuse_missing(compression: str) -> None:
    """Raise an `UnsupportedError` if hdf5plugin is needed but not installed."""
    if compression in ("lz4", "zstd") and not load_filters():
        msg = f"compression: {compression} needs hdf5plugin, which is not installed: {_INSTALL}"
        raise UnsupportedError(msg)


@functools.cache
def load_filters() -> bool:
    """Register the filters of hdf5plugin, if it is installed; takes 0.1 s."""
    try:
        import hdf5plugin  # noqa: F401  which tells HDF5
    except ImportError:
        return False
    return True


def unknown_filter(number: int) -> str:
    """The message for values compressed by a filter that is not available."""
    return f"its values are packed by the HDF5 filter {number}, which is not known here: {_INSTALL}"


# Exceptions that h5py raises for damaged files.
DAMAGED = (
    OSError,
    LookupError,
    ValueError,
    TypeError,
    RuntimeError,
    AttributeError,
    OverflowError,
    MemoryError,
)

# Time limits per object of a file: a group, its attributes, the ends of a dataset [s].
_COMPUTING = 3.0
_WAITING = 120.0  # wall time: a disk may be remote or spun down
_MOST_OBJECTS = 100_000  # groups and datasets of a file
# A packed chunk is unpacked as a whole, for a single value too [bytes].
_LARGEST_CHUNK = 1 << 29
_SMALL = 1 << 16  # datasets up to this size are read completely [bytes]
_SAID = 2000  # characters of the child's message
# Messages of the child: the file is sound; it is sound and refers to no other file.
_SOUND, _ALONE = b"..", b"."
_PACKED, _UNKNOWN = b"+", b"?"  # prefixes: filters were loaded; a filter is not available

# Filters that the child had to load.
_loaded: set[int] = set()
# Files that a child has survived, each in its state at that time.
_survived: set[tuple[object, ...]] = set()


class OutsideError(OSError):
    """Error for a file that refers to others outside its folder, or that crashes the HDF5
    library.
    """


def refuse_outside(path: Path) -> None:
    """Check everything in an HDF5 file, and in the files it refers to, in a child process.

    A file that cannot be opened at all passes: opening it later gives the reason.

    Raises:
        OutsideError: it refers to a file elsewhere, is damaged, or crashes the HDF5 library.
        UnsupportedError: its values are compressed by a filter that is not available.
    """
    import h5py  # noqa: F401  for the child too

    there = path.stat()
    if not (stat.S_ISREG(there.st_mode) or stat.S_ISDIR(there.st_mode)):
        msg = f"{path} is no file"
        raise OutsideError(msg)
    # Inode, size and times identify the content: a changed file is checked again.
    known = (path, there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns)
    if known in _survived:
        return
    ours, theirs = os.pipe()
    try:
        with warnings.catch_warnings():
            # Python warns about forking with threads. The child has none of them and touches
            # nothing of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _tell(path, theirs)

        status = 0
        with contextlib.suppress(ChildProcessError):  # if the process ignores SIGCHLD
            status = os.waitpid(child, 0)[1]
        # The child has ended, so nothing more will arrive; a crashed child has written nothing.
        os.set_blocking(ours, False)
        said = b""
        with contextlib.suppress(BlockingIOError):  # the child ended without a message
            said = os.read(ours, 4 * _SAID)
    finally:
        os.close(ours)
        os.close(theirs)

    if said.startswith(_UNKNOWN):
        msg = f"{path} cannot be read: {said[len(_UNKNOWN) :].decode(errors='replace')}"
        raise UnsupportedError(msg)
    if said.startswith(_PACKED):
        load_filters()
        said = said[len(_PACKED) :]

    # Only a file without references is remembered: files that it refers to may change.
    if said == _ALONE:
        _survived.add(known)
    elif said != _SOUND:
        raise OutsideError(said.decode(errors="replace") or _ending(status))


def _ending(status: int) -> str:
    """Description of a child that ended without a message."""
    code = os.waitstatus_to_exitcode(status)
    if -code in (signal.SIGPROF, signal.SIGALRM):
        return "the HDF5 library does not come to an end with it"
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"the HDF5 library ends the process that reads it, by {how}"


# The functions below run in the child.


def _tell(path: Path, to: int) -> NoReturn:
    """Read a file, report the outcome and exit."""
    said = _SOUND
    try:
        _set_apart(to)

        seen: set[tuple[Path, bool]] = set()
        _read_all(path, _rearm, seen)
        said = (_PACKED if _loaded else b"") + (_ALONE if len(seen) == 1 else _SOUND)
    except UnsupportedError as error:
        said = _UNKNOWN + str(error).encode()
    except OutsideError as error:
        said = str(error)[:_SAID].encode(errors="replace")
    except DAMAGED as error:
        said = first_line(error)[:_SAID].encode(errors="replace")

    # Exit without Python's cleanup, which belongs to the original process.
    finally:
        try:
            os.write(to, said)  # has no reader if the original was killed
        finally:
            os._exit(0)


def _set_apart(to: int) -> None:
    """Detach from the original process and suppress all output.

    All files except `to` are closed: otherwise a lock on a results directory would outlive the
    original through them.
    """
    gc.disable()
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in map(int, os.listdir("/dev/fd")):
        if number != to:
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(number)
    for _ in range(3):
        os.open(os.devnull, os.O_RDWR)  # the lowest numbers: all output goes nowhere

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the original process receives it too
    for number in (signal.SIGTERM, signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _rearm() -> None:
    """Restart the time limits; a signal ends the process when one of them expires."""
    signal.setitimer(signal.ITIMER_PROF, _COMPUTING)
    signal.setitimer(signal.ITIMER_REAL, _WAITING)


def _read_all(
    path: Path,
    rearm: Callable[[], None],
    seen: set[tuple[Path, bool]],
    *,
    values_only: bool = False,
) -> None:
    """Read a file and the files in its folder that it refers to.

    Args:
        path: file to read.
        rearm: called before each object is read.
        seen: files read so far, and whether only their values were read.
        values_only: whether attributes are never read, as in sources of virtual datasets.

    Raises:
        OutsideError: it refers to a file elsewhere.
    """
    import h5py

    seen.add((path.resolve(), values_only))
    rearm()
    try:
        file = h5py.File(path, "r", locking="best-effort")
    except DAMAGED:
        return  # opening it later gives the reason
    with file:
        for name, virtual in _referred(file, rearm, set(), values_only=values_only):
            if name == ".":  # the same file
                continue
            other = path.parent / os.fsdecode(name)
            inside = path.parent.resolve()
            # Names with "%" are patterns of virtual datasets, which stand for many files.
            if "%" in str(other) or not other.resolve().is_relative_to(inside):
                msg = f"it refers to {os.fsdecode(name)}, which is not in its folder"
                raise OutsideError(msg)
            if (other.resolve(), virtual) not in seen and other.is_file():
                _read_all(other, rearm, seen, values_only=virtual)


def _referred(
    group: Any, rearm: Callable[[], None], seen: set[int], *, values_only: bool
) -> Iterator[tuple[str | bytes, bool]]:
    """Read a group and all objects in it.

    Args:
        group: group of a file, or the file.
        rearm: called before each object is read.
        seen: addresses of objects read so far, since links may form cycles.
        values_only: whether attributes are never read.

    Yields:
        Names of other files as stored, and whether only their values are used.
    """
    import h5py

    if (address := h5py.h5o.get_info(group.id).addr) in seen:
        return
    seen.add(address)
    rearm()
    if not values_only:
        _read_attributes(group)
    links = group.id.links
    for name in [it.encode("utf-8", "surrogateescape") for it in group]:
        rearm()
        # The functions of HDF5 itself: a file may hold tens of thousands of empty groups.
        kind = links.get_info(name).type
        if kind == h5py.h5l.TYPE_EXTERNAL:
            yield links.get_val(name)[0], False
        if kind != h5py.h5l.TYPE_HARD:
            continue
        if len(seen) > _MOST_OBJECTS:
            msg = f"it holds more than {_MOST_OBJECTS} groups and datasets"
            raise OutsideError(msg)
        found = h5py.h5o.open(group.id, name)
        if isinstance(found, h5py.h5g.GroupID):
            yield from _referred(h5py.Group(found), rearm, seen, values_only=values_only)
        elif isinstance(found, h5py.h5d.DatasetID):
            item = h5py.Dataset(found)
            seen.add(h5py.h5o.get_info(found).addr)
            # Before any value is read, since reading a value follows the reference.
            yield from ((source, True) for source, _, _ in item.external or ())
            if item.is_virtual:
                yield from ((source.file_name, True) for source in item.virtual_sources())
            if not values_only:
                _read_attributes(item)
            _read_values(item, rearm)


def _read_attributes(item: Any) -> None:
    import h5py

    for name in item.attrs if h5py.h5a.get_num_attrs(item.id) else ():
        with contextlib.suppress(*DAMAGED):  # types unknown to h5py do not matter here
            item.attrs[name]


def _filters_of(dataset: Any) -> set[int]:
    """Numbers of the filters of a dataset, which are loaded if possible.

    Raises:
        UnsupportedError: a filter that runs may use is not available.
    """
    import h5py

    pipeline = dataset.id.get_create_plist()
    used = {pipeline.get_filter(k)[0] for k in range(pipeline.get_nfilters())}
    for number in sorted(used):
        if h5py.h5z.filter_avail(number):
            continue
        if load_filters() and h5py.h5z.filter_avail(number):
            _loaded.add(number)
        elif number in TRUSTED:
            raise UnsupportedError(unknown_filter(number))
    return used


def _refuse_large_chunk(dataset: Any, used: set[int]) -> None:
    with contextlib.suppress(*DAMAGED):
        n_bytes = math.prod(dataset.chunks or ()) * dataset.id.get_type().get_size()
        if not used or n_bytes <= _LARGEST_CHUNK:
            return
        name = printable(str(dataset.name))
        problem = (
            f"a chunk of {name} has {gib(n_bytes)} unpacked, and at most {gib(_LARGEST_CHUNK)} are "
            "read; write it anew with smaller chunks (h5repack)"
        )
    raise OutsideError(problem)


def _read_values(dataset: Any, rearm: Callable[[], None]) -> None:
    """Read a dataset as far as the library does more than copy values."""
    used: set[int] = set()
    with contextlib.suppress(*DAMAGED):
        used = _filters_of(dataset)
    _refuse_large_chunk(dataset, used)
    with contextlib.suppress(*DAMAGED):
        if not dataset.shape or dataset.dtype.hasobject or dataset.nbytes <= _SMALL:
            dataset[()]
            return

        # First and last point: both ends of the stored data are reached.
        for ends in ((0,) * dataset.ndim, tuple(n - 1 for n in dataset.shape)):
            rearm()
            dataset[ends]
        if dataset.chunks is None or dataset.is_virtual:
            return

        rearm()
        dataset.id.get_num_chunks()  # reads the whole chunk index
        for chunk in dataset.iter_chunks() if used - TRUSTED else ():
            rearm()
            dataset[chunk]
