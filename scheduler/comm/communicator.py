"""Communicator: how the ranks of a run talk to each other. One process alone needs nobody, and no
MPI library.

Small objects are told to all (`tell`) or collected from all (`collect`), arrays are sent and
received without waiting. Whoever waits asks again and again, more and more seldom: so signals are
heard, and a rank that has nothing to do leaves its core to others, which a wait inside of MPI would
not.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import pickle
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import ElsewhereError, ExitCode, StopRequested, TetrisError, UnsupportedError
from tetris_sim.scheduler.comm.launcher import count_ranks
from tetris_sim.scheduler.facts.domain import Link

log = logging.getLogger("tetris_sim")

T = TypeVar("T")

# Of asking without a pause: longer than most messages take. Long ones go in pieces, of which MPI
# passes on one when it is asked: with pauses Open MPI makes 0.08 GB/s of them.
_EAGER_SECONDS, _EAGER_BYTES = 5e-4, 2e8  # and by so many bytes another second
# share of the time waited, and seconds, by which an arrival may be noticed late
_LATE, _LONGEST_PAUSE = 0.1, 1e-3
# seconds for the launcher to pass on what was said: MPICH's drops it when it is told to end all
_LAST_WORDS = 0.5
_MPICH_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA
_INSTALL = "pip install 'tetris-sim[mpi]'"


class Pending(Protocol):
    """A message on its way; its array must be left alone until `wait` returns."""

    def wait(self) -> None:
        """Return when the array was sent, or is filled."""


class Communicator(Protocol):
    """The ranks of a run, as one of them sees them. What has no receiver or sender in its arguments
    all ranks call.

    Attributes:
        rank: number of this one; 0 prints and writes.
        size: number of ranks.
        ending: whether all ranks know that the run ends with an error, so that none has to be
            stopped by force.
    """

    rank: int
    size: int
    ending: bool

    def tell(self, value: T) -> T:
        """What rank 0 gives as `value`, on every rank."""

    def collect(self, value: T) -> list[T]:
        """What every rank gives as `value`, in the order of ranks, on every rank."""

    def largest(self, numbers: Sequence[float]) -> tuple[float, ...]:
        """The largest of each number over all ranks; every rank gives as many. The cheapest of
        these calls.
        """

    def neighbours(self) -> tuple[int, ...]:
        """The ranks on the same computer, this one included, ascending."""

    def takes_gpu_memory(self) -> bool:
        """Whether MPI says on all ranks that arrays may lie in GPU memory."""

    def send(self, array: npt.NDArray[Any], to: int, tag: int) -> Pending:
        """Send a contiguous array, in GPU memory if MPI can do that.

        Those with the same receiver and tag arrive in the order in which they were sent.
        """

    def receive(self, array: npt.NDArray[Any], source: int, tag: int) -> Pending:
        """Fill a contiguous array with what `source` sends."""

    def abort(self, code: int) -> None:
        """End all ranks at once with an exit code."""


class Alone:
    """One process, no MPI."""

    rank, size = 0, 1

    def __init__(self) -> None:
        self.ending = False

    def tell(self, value: T) -> T:
        """The value."""
        return value

    def collect(self, value: T) -> list[T]:
        """The value."""
        return [value]

    def largest(self, numbers: Sequence[float]) -> tuple[float, ...]:
        """The numbers."""
        return tuple(numbers)

    def neighbours(self) -> tuple[int, ...]:
        """Itself."""
        return (0,)

    def takes_gpu_memory(self) -> bool:
        """Nobody takes anything."""
        return False

    def send(self, array: npt.NDArray[Any], to: int, tag: int) -> Pending:
        """There is nobody."""
        msg = f"one rank alone sends nothing, not even to {to}"
        raise ValueError(msg)

    def receive(self, array: npt.NDArray[Any], source: int, tag: int) -> Pending:
        """There is nobody."""
        msg = f"one rank alone receives nothing, not even from {source}"
        raise ValueError(msg)

    def abort(self, code: int) -> None:
        """There is nobody else to end."""


class MpiCommunicator:
    """The ranks of MPI's world.

    Args:
        mpi: the module `mpi4py.MPI`, initialised.
    """

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        self._world = mpi.COMM_WORLD
        self.rank, self.size = int(self._world.rank), int(self._world.size)
        self.ending = False

    def tell(self, value: T) -> T:
        """Two broadcasts: the length, and the pickled value."""
        text = pickle.dumps(value) if self.rank == 0 else b""
        length = np.array([len(text)], dtype=np.int64)
        self._wait(self._world.Ibcast(length, 0))
        buffer = bytearray(text) if self.rank == 0 else bytearray(int(length[0]))
        self._wait(self._world.Ibcast([buffer, self._mpi.BYTE], 0))
        return value if self.rank == 0 else pickle.loads(buffer)

    def collect(self, value: T) -> list[T]:
        """The lengths, then the pickled values."""
        text = pickle.dumps(value)
        lengths = np.empty(self.size, dtype=np.int64)
        self._wait(self._world.Iallgather(np.array([len(text)], dtype=np.int64), lengths))
        ends = np.cumsum(lengths)
        buffer = bytearray(int(ends[-1]))
        target = [buffer, lengths.tolist(), (ends - lengths).tolist(), self._mpi.BYTE]
        self._wait(self._world.Iallgatherv([text, self._mpi.BYTE], target), len(buffer))
        return [
            value if rank == self.rank else pickle.loads(buffer[end - length : end])
            for rank, (end, length) in enumerate(zip(ends.tolist(), lengths.tolist(), strict=True))
        ]

    def largest(self, numbers: Sequence[float]) -> tuple[float, ...]:
        """One reduction."""
        own, most = np.array(numbers, dtype=np.float64), np.empty(len(numbers))
        self._wait(self._world.Iallreduce(own, most, self._mpi.MAX))
        return tuple(most.tolist())

    def neighbours(self) -> tuple[int, ...]:
        """Those that could share memory."""
        node = self._world.Split_type(self._mpi.COMM_TYPE_SHARED)
        try:
            return tuple(sorted(node.allgather(self.rank)))
        finally:
            node.Free()

    def takes_gpu_memory(self) -> bool:
        """What the extensions of Open MPI and of MPICH for CUDA say."""
        return not self.largest([not _reads_gpus(self._mpi.__file__)])[0]

    def send(self, array: npt.NDArray[Any], to: int, tag: int) -> Pending:
        """Begin to send."""
        return _Message(self, self._world.Isend(_as_known(array), to, tag), array.nbytes)

    def receive(self, array: npt.NDArray[Any], source: int, tag: int) -> Pending:
        """Begin to receive."""
        return _Message(self, self._world.Irecv(_as_known(array), source, tag), array.nbytes)

    def abort(self, code: int) -> None:
        """Let MPI end everybody."""
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(_LAST_WORDS)
        self._world.Abort(code)

    def _wait(self, request: Any, n_bytes: int = 0) -> None:
        begin, eager = time.perf_counter(), _EAGER_SECONDS + n_bytes / _EAGER_BYTES
        while not request.Test():
            waited = time.perf_counter() - begin
            if waited > eager:
                time.sleep(min(_LATE * waited, _LONGEST_PAUSE))
            elif waited > _EAGER_SECONDS:
                os.sched_yield()  # to a rank on the same core that may be what is waited for


def _reads_gpus(module: str) -> bool:
    """Whether the library that a module of mpi4py is linked to was built for CUDA, and uses it."""
    library = ctypes.CDLL(module)
    if hasattr(library, "MPIX_Query_cuda_support"):
        return bool(library.MPIX_Query_cuda_support())
    if hasattr(library, "MPIX_GPU_query_support"):
        found = ctypes.c_int(0)
        library.MPIX_GPU_query_support(_MPICH_CUDA, ctypes.byref(found))
        return bool(found.value)
    return False


def _as_known(array: Any) -> Any:
    """The same memory as numbers that MPI knows: it has no half precision."""
    return array.view(np.uint16) if array.dtype == np.float16 else array


class _Message:
    """A request of MPI and who can wait for it."""

    def __init__(self, communicator: MpiCommunicator, request: Any, n_bytes: int) -> None:
        self._communicator, self._request, self._n_bytes = communicator, request, n_bytes

    def wait(self) -> None:
        self._communicator._wait(self._request, self._n_bytes)


@contextlib.contextmanager
def open_communicator(environ: Mapping[str, str] | None = None) -> Iterator[Communicator]:
    """The ranks that a launcher started, or one alone; MPI begins and ends with the block.

    An exception that not all ranks know of (`Communicator.ending`) is said, and ends all of them at
    once.

    Args:
        environ: the environment that tells of the launcher; the process's own if not given.

    Raises:
        UnsupportedError: there is no MPI library, or not the launcher's.
    """
    n_ranks = count_ranks(environ)
    if n_ranks == 1:
        yield Alone()
        return

    mpi = _import_mpi(n_ranks)
    ours = not mpi.Is_initialized()
    if ours:
        mpi.Init_thread(mpi.THREAD_FUNNELED)
    ranks = MpiCommunicator(mpi)
    if ranks.size != n_ranks:
        library = mpi.Get_library_version().splitlines()[0].strip(" \t,\0")
        msg = (
            f"an MPI launcher started {n_ranks} ranks, but the library that mpi4py found "
            f"({library}) sees {ranks.size}: the two do not belong together. Use the library's own "
            "launcher (mpiexec beside the Python of this environment, if the library came with "
            f"{_INSTALL})."
        )
        raise UnsupportedError(msg)

    try:
        yield ranks
    except BaseException as error:
        if not ranks.ending:
            _say(error, ranks)
            ranks.abort(_exit_code(error))
        raise
    finally:
        if ours:
            mpi.Finalize()


def _import_mpi(n_ranks: int) -> Any:
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # the latter: mpi4py without an MPI library
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        msg = (
            f"an MPI launcher started {n_ranks} ranks, but MPI cannot be used from Python "
            f"({reason}). Install it with {_INSTALL}, or with `pip install mpi4py` where a cluster "
            "has its own MPI; or start without the launcher."
        )
        raise UnsupportedError(msg) from error
    return MPI


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return int(ExitCode.INTERRUPTED)
    if isinstance(error, StopRequested):
        return int(error.exit_code)
    return int(error.exit_code if isinstance(error, TetrisError) else ExitCode.INTERNAL)


def _say(error: BaseException, ranks: Communicator) -> None:
    """Say what ends all ranks; nobody else will."""
    who = f"rank {ranks.rank} on {platform.node()}"
    if isinstance(error, TetrisError | StopRequested):
        log.error("tetris-sim: %s: %s", who, error)
    elif isinstance(error, KeyboardInterrupt):
        os.write(2, b"\naborted\n")
    else:
        log.error("%s failed: this is a bug in tetris_sim, please report it", who, exc_info=error)


# Agreement: ranks do something together, and if one of them fails, all of them know and end alike.
#
# The first rank that failed raises its own error and says why. The others raise `ElsewhereError`,
# with the same exit code and in silence.


def everywhere(ranks: Communicator, work: Callable[[], T]) -> T:
    """Every rank does it: its own result, if all of them have one.

    Args:
        ranks: all of them call this.
        work: must not talk to other ranks, which may have failed.
    """
    value, failure = _attempt(work)
    codes = ranks.collect(None if failure is None else _code(failure))
    _raise_first(ranks, codes, failure)
    return value  # type: ignore[return-value]


def on_root(ranks: Communicator, work: Callable[[], T]) -> T:
    """Rank 0 does it: its result, on every rank.

    Args:
        ranks: all of them call this.
        work: called on rank 0 only; its result is pickled.
    """
    value, failure = _attempt(work) if ranks.rank == 0 else (None, None)
    code, value = ranks.tell((None if failure is None else _code(failure), value))
    _raise_first(ranks, [code], failure)
    return value  # type: ignore[return-value]


def end_alike(ranks: Communicator, code: int) -> ElsewhereError:
    """The error of a rank that heard of a failure elsewhere; nobody has to be stopped by force."""
    ranks.ending = True
    return ElsewhereError(ExitCode(code))


def _attempt(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return work(), None
    except Exception as error:  # noqa: BLE001  raised again when all ranks know
        return None, error


def _code(failure: Exception) -> int:
    if isinstance(failure, MemoryError):
        return int(ExitCode.RESOURCES)
    return int(failure.exit_code if isinstance(failure, TetrisError) else ExitCode.INTERNAL)


def _raise_first(ranks: Communicator, codes: list[int | None], failure: Exception | None) -> None:
    failed = [(rank, code) for rank, code in enumerate(codes) if code is not None]
    if not failed:
        return
    first, code = failed[0]
    elsewhere = end_alike(ranks, code)
    raise failure if failure is not None and ranks.rank == first else elsewhere


# Links: how long does a message between ranks take? Measured, since it decides how often they
# should meet.

_SHORT, _LONG = 8, 1 << 20  # bytes
_TIMES = 9
_TAG = 20


def measure_link(ranks: Communicator) -> Link:
    """Let all ranks send to the next one at the same time, as in an exchange; the slowest counts.

    Args:
        ranks: at least two; all of them call this.
    """
    short, long = _time_messages(ranks, _SHORT), _time_messages(ranks, _LONG)
    short, long = ranks.largest((short, long))
    return Link(short, max(long - short, 0.0) / (_LONG - _SHORT))


def _time_messages(ranks: Communicator, n_bytes: int) -> float:
    out, back = np.zeros(n_bytes, dtype=np.uint8), np.empty(n_bytes, dtype=np.uint8)

    seconds = []
    for _ in range(_TIMES):
        begin = time.perf_counter()
        arriving = ranks.receive(back, (ranks.rank - 1) % ranks.size, _TAG)
        leaving = ranks.send(out, (ranks.rank + 1) % ranks.size, _TAG)
        arriving.wait()
        leaving.wait()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
