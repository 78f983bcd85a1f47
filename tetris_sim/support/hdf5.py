"""Files of others: HDF5 that leads to files elsewhere, or that the library does not survive.

An HDF5 file may say that its numbers are those of another file: by an external link, by a virtual
dataset, or by external storage, which takes any bytes for numbers. What a run writes refers to
files beside and below it; a file that refers to others may come from somebody who would like to
see them, and is not read.

The library follows what a file says about itself, in C: a damaged or forged one can make it go
round for ever or end the process. So a child, a copy of this process that nobody misses, reads
everything that a reader may read later: only a file that it comes back from is opened here
(docs/decisions/0033-files-of-others-in-a-child.md).
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import os
import resource
import signal
import stat
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from tetris_sim.errors import UnsupportedError
from tetris_sim.support.wording import first_line

# Packing: the ways in which values in HDF5 files are made smaller without losing a bit.
#
# What HDF5 knows by itself needs nothing. LZ4 and Zstd come with hdf5plugin, for who writes and for
# who reads (docs/file-format.md).

# Filters whose output is what went in or an error: deflate, shuffle, fletcher32, LZ4, Zstd. Blosc,
# which is faster, ends the process with one damaged chunk or another.
TRUSTED = frozenset({1, 2, 3, 32004, 32015})
_INSTALL = "pip install 'tetris-sim[compression]'"


def packed(compression: str, chunk: tuple[int, ...]) -> dict[str, Any]:
    """Options of a dataset whose values are packed in chunks of this shape.

    Args:
        compression: "gzip", "lz4" or "zstd".
        chunk: points per axis.

    Raises:
        UnsupportedError: hdf5plugin is needed, and not installed.
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
    """Raise an `UnsupportedError` if hdf5plugin is needed, and not installed."""
    if compression in ("lz4", "zstd") and not load_filters():
        msg = f"compression: {compression} needs hdf5plugin, which is not installed: {_INSTALL}"
        raise UnsupportedError(msg)


@functools.cache
def load_filters() -> bool:
    """Let HDF5 know the filters of hdf5plugin, if it is installed; takes 0.1 s."""
    try:
        import hdf5plugin  # noqa: F401  which tells HDF5
    except ImportError:
        return False
    return True


def unknown_filter(number: int) -> str:
    """What is to be said of values that a filter has packed that HDF5 does not know here."""
    return f"its values are packed by the HDF5 filter {number}, which is not known here: {_INSTALL}"


# What h5py raises for a damaged file: whatever the piece leads to that cannot be read.
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

# Seconds that one piece of a file may take: a group, its attributes, the ends of a dataset.
_COMPUTING = 3.0
_WAITING = 120.0  # of the clock: a disk may be far away, and asleep
_SMALL = 1 << 16  # bytes of a dataset that are read whole
_SAID = 2000  # characters of what the child says
# What it says of a file that is none of this, and of one that refers to no other either.
_SOUND, _ALONE = b"..", b"."
_PACKED, _UNKNOWN = b"+", b"?"  # before these: filters were loaded; after it: one that is not known

# Filters that a child had to load.
_loaded: set[int] = set()
# Files that a child came back from, each as it was then.
_survived: set[tuple[object, ...]] = set()


class OutsideError(OSError):
    """A file refers to one that is neither in its folder nor below, or cannot be survived."""


def refuse_outside(path: Path) -> None:
    """Let a child look at everything in an HDF5 file, and in files beside it that it refers to.

    What cannot be opened at all is left to who opens it next.

    Raises:
        OutsideError: it refers to a file elsewhere, is damaged, or the HDF5 library does not come
            back from it.
        UnsupportedError: its values are packed in a way that is not known here.
    """
    import h5py  # noqa: F401  for the child too

    there = path.stat()
    if not (stat.S_ISREG(there.st_mode) or stat.S_ISDIR(there.st_mode)):
        msg = f"{path} is no file"
        raise OutsideError(msg)
    known = (path, there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns)
    if known in _survived:
        return
    ours, theirs = os.pipe()
    try:
        with warnings.catch_warnings():
            # Other threads do not come along, and nothing of theirs is touched.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _tell(path, theirs)

        status = 0
        with contextlib.suppress(ChildProcessError):  # where nobody waits for children
            status = os.waitpid(child, 0)[1]
        os.set_blocking(ours, False)
        said = b""
        with contextlib.suppress(BlockingIOError):  # it did not come to say anything
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
    if said == _ALONE:
        _survived.add(known)
    elif said != _SOUND:
        raise OutsideError(said.decode(errors="replace") or _ending(status))


def _ending(status: int) -> str:
    """How the child ended that said nothing."""
    code = os.waitstatus_to_exitcode(status)
    if -code in (signal.SIGPROF, signal.SIGALRM):
        return "the HDF5 library does not come to an end with it"
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"the HDF5 library ends the process that reads it, by {how}"


# ---- in the child


def _tell(path: Path, to: int) -> NoReturn:
    """Read a file, say how that was, and end."""
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
    finally:
        try:
            os.write(to, said)  # to nobody, if the process was killed
        finally:
            os._exit(0)


def _set_apart(to: int) -> None:
    """Leave what belongs to the process that this one is a copy of, and be quiet.

    Its files are closed but for `to`: a lock on a results directory would outlive it by them.
    """
    gc.disable()
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in map(int, os.listdir("/proc/self/fd")):
        if number != to:
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(number)
    for _ in range(3):
        os.open(os.devnull, os.O_RDWR)  # the lowest numbers: what is said goes nowhere

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the original hears it too
    for number in (signal.SIGTERM, signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _rearm() -> None:
    """Begin the time of the next piece; if it passes, a signal ends the process."""
    signal.setitimer(signal.ITIMER_PROF, _COMPUTING)
    signal.setitimer(signal.ITIMER_REAL, _WAITING)


def _read_all(
    path: Path,
    rearm: Callable[[], None],
    seen: set[tuple[Path, bool]],
    *,
    values_only: bool = False,
) -> None:
    """Read a file and those beside it.

    Args:
        path: the file.
        rearm: called before each piece.
        seen: files that were read, and how.
        values_only: whether nobody will look at attributes, as with sources of virtual datasets.

    Raises:
        OutsideError: it refers to a file elsewhere.
    """
    import h5py

    seen.add((path.resolve(), values_only))
    rearm()
    try:
        file = h5py.File(path, "r", locking="best-effort")
    except DAMAGED:
        return  # who opens it next says why
    with file:
        for name, virtual in _referred(file, rearm, set(), values_only=values_only):
            if name == ".":  # the same file
                continue
            other = path.parent / os.fsdecode(name)
            inside = path.parent.resolve()
            if "%" in str(other) or not other.resolve().is_relative_to(inside):
                msg = f"it refers to {os.fsdecode(name)}, which is not in its folder"
                raise OutsideError(msg)
            if (other.resolve(), virtual) not in seen and other.is_file():
                _read_all(other, rearm, seen, values_only=virtual)


def _referred(
    group: Any, rearm: Callable[[], None], seen: set[int], *, values_only: bool
) -> Iterator[tuple[str | bytes, bool]]:
    """Read a group and all in it.

    Args:
        group: a group of a file, or the file.
        rearm: called before each piece.
        seen: addresses of what was read: links may go round in a circle.
        values_only: whether nobody will look at attributes.

    Yields:
        Names of files as they are written there, and whether only values are taken from them.
    """
    import h5py

    if (address := h5py.h5o.get_info(group.id).addr) in seen:
        return
    seen.add(address)
    rearm()
    if not values_only:
        _read_attributes(group)
    for name in group:
        rearm()
        link = group.get(name, getlink=True)
        if isinstance(link, h5py.ExternalLink):
            yield link.filename, False
        if not isinstance(link, h5py.HardLink):
            continue
        item = group.get(name)
        if isinstance(item, h5py.Group):
            yield from _referred(item, rearm, seen, values_only=values_only)
        elif isinstance(item, h5py.Dataset):
            # Before any value is read: values are what it may lead to.
            yield from ((source, True) for source, _, _ in item.external or ())
            if item.is_virtual:
                yield from ((source.file_name, True) for source in item.virtual_sources())
            if not values_only:
                _read_attributes(item)
            _read_values(item, rearm)


def _read_attributes(item: Any) -> None:
    for name in item.attrs:
        with contextlib.suppress(*DAMAGED):  # kinds that h5py does not know do not matter yet
            item.attrs[name]


def _filters_of(dataset: Any) -> set[int]:
    """Numbers of the filters that a dataset is packed with; they are known afterwards, if they can.

    Raises:
        UnsupportedError: one that a run packs with is not known here.
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


def _read_values(dataset: Any, rearm: Callable[[], None]) -> None:
    """Read a dataset as far as the library does more with it than to copy numbers."""
    used: set[int] = set()
    with contextlib.suppress(*DAMAGED):
        used = _filters_of(dataset)
    with contextlib.suppress(*DAMAGED):
        if not dataset.shape or dataset.dtype.hasobject or dataset.nbytes <= _SMALL:
            dataset[()]
            return

        for ends in ((0,) * dataset.ndim, tuple(n - 1 for n in dataset.shape)):
            rearm()
            dataset[ends]
        if dataset.chunks is None or dataset.is_virtual:
            return

        rearm()
        dataset.id.get_num_chunks()  # follows the whole index of them
        for chunk in dataset.iter_chunks() if used - TRUSTED else ():
            rearm()
            dataset[chunk]
