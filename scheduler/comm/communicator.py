"""Communicators: messages between the ranks of a run, error handling that ends all ranks alike, and
the cost of a message. A single process needs no MPI library.

Small objects are broadcast (`tell`) or gathered (`collect`); arrays are sent and received
asynchronously. Waiting is polling with growing pauses: signals are still handled, and an idle rank
leaves its core to others, neither of which is so for a wait inside MPI.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
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

from tetris_sim.errors import (
    ElsewhereError,
    ExitCode,
    StopRequested,
    UnsupportedError,
    as_told,
)
from tetris_sim.scheduler.comm.peers import OPENING_SECONDS, Heart, count_ranks, launched_rank
from tetris_sim.scheduler.facts.shares import Link
from tetris_sim.support import keep_to, let_others_run, usable_cores

log = logging.getLogger("tetris_sim")

T = TypeVar("T")

# Polling without a pause: longer than most messages take. Long messages are passed on in pieces,
# one per poll: with pauses, Open MPI reaches only 0.08 GB/s.
_EAGER_SECONDS, _EAGER_BYTES = 5e-4, 2e8  # one more second per this many bytes
# Pause between polls: a share of the time waited so far, and at most this many seconds. An arrival
# is noticed that much later.
_LATE, _LONGEST_PAUSE = 0.1, 1e-3
# Time for the launcher to forward the last output; that of MPICH drops it when it is told to end
# all ranks [s].
_LAST_WORDS = 0.5
_ABORTING = 2.0  # seconds for MPI to end all processes, which it may fail to
_MPICH_CUDA = 0  # MPIX_GPU_SUPPORT_CUDA
_INSTALL = "pip install 'tetris-sim[mpi]'"


class Pending(Protocol):
    """A message in transit; its array must not be used until `wait` returns."""

    def wait(self) -> None:
        """Return when the array has been sent or filled."""


class Communicator(Protocol):
    """The ranks of a run, as seen by one of them. Calls without a receiver or sender among their
    arguments are collective.

    Attributes:
        rank: number of this rank; rank 0 prints and writes.
        size: number of ranks.
        ending: whether all ranks know that the run ends with an error, so that none has to be
            aborted.
        timeout: seconds after the last sign of life of a rank within which the others end.
    """

    rank: int
    size: int
    ending: bool
    timeout: float

    def tell(self, value: T) -> T:
        """Broadcast the value of rank 0 to all ranks."""

    def collect(self, value: T) -> list[T]:
        """Gather the values of all ranks, in rank order, on every rank."""

    def largest(self, numbers: Sequence[float]) -> tuple[float, ...]:
        """Maximum of each number over all ranks; all ranks pass equally many. The cheapest
        collective call here.
        """

    def neighbours(self) -> tuple[int, ...]:
        """The ranks on the same computer, including this one, in ascending order."""

    def takes_gpu_memory(self) -> bool:
        """Whether MPI accepts arrays in GPU memory on all ranks."""

    def send(self, array: npt.NDArray[Any], to: int, tag: int) -> Pending:
        """Start to send a contiguous array, which may lie in GPU memory if MPI supports that.

        Messages with the same receiver and tag arrive in the order in which they were sent.
        """

    def receive(self, array: npt.NDArray[Any], source: int, tag: int) -> Pending:
        """Start to receive a message of `source` into a contiguous array."""

    def abort(self, code: int) -> None:
        """End all ranks at once with an exit code."""


class Alone:
    """The communicator of a single process, without MPI."""

    rank, size = 0, 1

    def __init__(self) -> None:
        self.ending = False
        self.timeout = math.inf

    def tell(self, value: T) -> T:
        """Return the value."""
        return value

    def collect(self, value: T) -> list[T]:
        """Return the value as the only element."""
        return [value]

    def largest(self, numbers: Sequence[float]) -> tuple[float, ...]:
        """Return the numbers."""
        return tuple(numbers)

    def neighbours(self) -> tuple[int, ...]:
        """Return the only rank."""
        return (0,)

    def takes_gpu_memory(self) -> bool:
        """Return False: there is no MPI."""
        return False

    def send(self, array: npt.NDArray[Any], to: int, tag: int) -> Pending:
        """Raise `ValueError`: there is no other rank."""
        msg = f"one rank alone sends nothing, not even to {to}"
        raise ValueError(msg)

    def receive(self, array: npt.NDArray[Any], source: int, tag: int) -> Pending:
        """Raise `ValueError`: there is no other rank."""
        msg = f"one rank alone receives nothing, not even from {source}"
        raise ValueError(msg)

    def abort(self, code: int) -> None:
        """Do nothing: there are no other ranks to end."""


class MpiCommunicator:
    """The ranks of `MPI.COMM_WORLD`.

    Args:
        mpi: the module `mpi4py.MPI`, initialised.
        heart: tells which ranks are alive; not joined yet.
    """

    def __init__(self, mpi: Any, heart: Heart) -> None:
        self._mpi, self._heart = mpi, heart
        self._world = mpi.COMM_WORLD
        self.rank, self.size = int(self._world.rank), int(self._world.size)
        self.ending = False

    @property
    def timeout(self) -> float:
        """Of the beats of the peers."""
        return self._heart.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._heart.timeout = seconds

    def meet(self) -> None:
        """Wait for all ranks."""
        self._wait(self._world.Ibarrier())

    def tell(self, value: T) -> T:
        """Broadcast the length, then the pickled value."""
        text = pickle.dumps(value) if self.rank == 0 else b""
        length = np.array([len(text)], dtype=np.int64)
        # Nonblocking collectives with polling, so that signals are handled while ranks wait.
        self._wait(self._world.Ibcast(length, 0))
        buffer = bytearray(text) if self.rank == 0 else bytearray(int(length[0]))
        self._wait(self._world.Ibcast([buffer, self._mpi.BYTE], 0))
        return value if self.rank == 0 else pickle.loads(buffer)

    def collect(self, value: T) -> list[T]:
        """Gather the lengths, then the pickled values."""
        text = pickle.dumps(value)
        lengths = np.empty(self.size, dtype=np.int64)
        self._wait(self._world.Iallgather(np.array([len(text)], dtype=np.int64), lengths))
        ends = np.cumsum(lengths)
        buffer = bytearray(int(ends[-1]))
        # Values lie one after the other in the buffer: (data, lengths, offsets, type).
        target = [buffer, lengths.tolist(), (ends - lengths).tolist(), self._mpi.BYTE]
        self._wait(self._world.Iallgatherv([text, self._mpi.BYTE], target), len(buffer))
        return [
            value if rank == self.rank else pickle.loads(buffer[end - length : end])
            for rank, (end, length) in enumerate(zip(ends.tolist(), lengths.tolist(), strict=True))
        ]

    def largest(self, numbers: Sequence[float]) -> tuple[float, ...]:
        """Reduce by the maximum."""
        own, most = np.array(numbers, dtype=np.float64), np.empty(len(numbers))
        self._wait(self._world.Iallreduce(own, most, self._mpi.MAX))
        return tuple(most.tolist())

    def neighbours(self) -> tuple[int, ...]:
        """The ranks that could share memory with this one."""
        node = self._world.Split_type(self._mpi.COMM_TYPE_SHARED)
        try:
            return tuple(sorted(node.allgather(self.rank)))
        finally:
            node.Free()

    def takes_gpu_memory(self) -> bool:
        """Whether the CUDA extensions of Open MPI or MPICH report support, on all ranks."""
        # The maximum of "no support" is true if any rank lacks it.
        return not self.largest([not _reads_gpus(self._mpi.__file__)])[0]

    def send(self, array: npt.NDArray[Any], to: int, tag: int) -> Pending:
        """Start a nonblocking send."""
        return _Message(self, self._world.Isend(_as_known(array), to, tag), array.nbytes)

    def receive(self, array: npt.NDArray[Any], source: int, tag: int) -> Pending:
        """Start a nonblocking receive."""
        return _Message(self, self._world.Irecv(_as_known(array), source, tag), array.nbytes)

    def abort(self, code: int) -> None:
        """Let MPI end all processes."""
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(_LAST_WORDS)
        with self._heart.ended_within(_ABORTING, ""):
            self._world.Abort(code)

    def _wait(self, request: Any, n_bytes: int = 0) -> None:
        # A long message is polled without pauses for longer, by its size.
        begin, eager = time.perf_counter(), _EAGER_SECONDS + n_bytes / _EAGER_BYTES
        while not request.Test():
            waited = time.perf_counter() - begin
            if waited > eager:
                self._heart.refuse_lost()
                time.sleep(min(_LATE * waited, _LONGEST_PAUSE))
            elif waited > _EAGER_SECONDS:
                let_others_run()  # the rank waited for may run on the same core


def _reads_gpus(module: str) -> bool:
    """Whether the library that a module of mpi4py is linked to was built for CUDA and has it
    enabled.
    """
    library = ctypes.CDLL(module)
    if hasattr(library, "MPIX_Query_cuda_support"):
        return bool(library.MPIX_Query_cuda_support())
    if hasattr(library, "MPIX_GPU_query_support"):
        found = ctypes.c_int(0)
        library.MPIX_GPU_query_support(_MPICH_CUDA, ctypes.byref(found))
        return bool(found.value)
    return False


def _as_known(array: Any) -> Any:
    """A view of the array with a type that MPI knows: it has no half precision."""
    return array.view(np.uint16) if array.dtype == np.float16 else array


class _Message:
    """A request of MPI, and the communicator that polls it."""

    def __init__(self, communicator: MpiCommunicator, request: Any, n_bytes: int) -> None:
        self._communicator, self._request, self._n_bytes = communicator, request, n_bytes

    def wait(self) -> None:
        self._communicator._wait(self._request, self._n_bytes)


@contextlib.contextmanager
def open_communicator(environ: Mapping[str, str] | None = None) -> Iterator[Communicator]:
    """The ranks that a launcher started, or a single one; MPI is initialized and finalized by the
    `with` block.

    An exception that not all ranks know of (see `Communicator.ending`) is logged and aborts all of
    them.

    Args:
        environ: environment with the launcher's variables; that of the process if not given.

    Raises:
        UnsupportedError: there is no MPI library, or not the one of the launcher.
    """
    n_ranks = count_ranks(environ)
    if n_ranks == 1:
        yield Alone()
        return

    mpi, heart = _import_mpi(n_ranks), Heart(n_ranks)
    with contextlib.closing(heart):
        # A caller that has initialized MPI already also finalizes it.
        ours = not mpi.Is_initialized()
        with heart.ended_within(OPENING_SECONDS, _not_all_here("start")):
            if ours:
                mpi.Init_thread(mpi.THREAD_FUNNELED)
            ranks = MpiCommunicator(mpi, heart)
            _refuse_other_library(ranks.size, n_ranks, mpi)
            heart.join(ranks.rank, ranks.size, ranks.collect)

        try:
            yield ranks
            # No rank finalizes, which MPI cannot interrupt, while others still compute.
            ranks.meet()
        except BaseException as error:
            if not ranks.ending:
                _say(error, ranks)
                ranks.abort(_exit_code(error))
            ranks.meet()
            raise
        finally:
            if ours:
                with heart.ended_within(heart.timeout, _not_all_here("end")):
                    mpi.Finalize()


@contextlib.contextmanager
def open_executor(n_ranks: int) -> Iterator[Any]:
    """Rank 0 gets an Executor of mpi4py.futures whose workers are the other ranks; these serve it
    inside this call and get None once it is shut down.

    Workers of one computer that a launcher left unbound share its cores out among themselves.

    Args:
        n_ranks: how many the launcher started, at least 2.

    Raises:
        UnsupportedError: there is no MPI library, or not the one of the launcher.
    """
    mpi = _import_mpi(n_ranks)
    # The thread that hands work out is not the one that has it made.
    if ours := not mpi.Is_initialized():
        mpi.Init_thread(mpi.THREAD_MULTIPLE)
    try:
        _refuse_other_library(mpi.COMM_WORLD.size, n_ranks, mpi)
        node = mpi.COMM_WORLD.Split_type(mpi.COMM_TYPE_SHARED)
        cores = usable_cores()
        beside = node.allgather((mpi.COMM_WORLD.rank, cores))
        node.Free()
        workers = [rank for rank, allowed in beside if rank and allowed == cores]
        if mpi.COMM_WORLD.rank and len(workers) > 1:
            own = cores[workers.index(mpi.COMM_WORLD.rank) % len(cores) :: len(workers)]
            keep_to(own)

        from mpi4py.futures import MPICommExecutor

        with MPICommExecutor(mpi.COMM_WORLD, root=0) as executor:
            yield executor
    finally:
        if ours:
            mpi.Finalize()


def _not_all_here(moment: str) -> str:
    return (
        f"rank {launched_rank()} on {platform.node()}: MPI waits for ever for other ranks at its "
        f"{moment}: one of them is frozen, or its computer or the network is lost"
    )


def _refuse_other_library(seen: int, n_ranks: int, mpi: Any) -> None:
    # With a library that is not the launcher's, each process usually becomes rank 0 of 1.
    if seen != n_ranks:
        library = mpi.Get_library_version().splitlines()[0].strip(" \t,\0")
        msg = (
            f"an MPI launcher started {n_ranks} ranks, but the library that mpi4py found "
            f"({library}) sees {seen}: the two do not belong together. Use the library's own "
            "launcher (mpiexec beside the Python of this environment, if the library came with "
            f"{_INSTALL})."
        )
        raise UnsupportedError(msg)


def _import_mpi(n_ranks: int) -> Any:
    try:
        import mpi4py

        # MPI must not be initialized by the import: `open_communicator` chooses the thread level.
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
    told = as_told(error)
    return int(ExitCode.INTERNAL if told is None else told.exit_code)


def _say(error: BaseException, ranks: Communicator) -> None:
    """Log the error that ends all ranks, which no other rank knows."""
    who = f"rank {ranks.rank} on {platform.node()}"
    told = error if isinstance(error, StopRequested) else as_told(error)
    if told is not None:
        log.error("tetris-sim: %s: %s", who, told)
    elif isinstance(error, KeyboardInterrupt):
        # The user pressed Ctrl-C: no error to report.
        os.write(2, b"\naborted\n")
    else:
        log.error("%s failed: this is a bug in tetris_sim, please report it", who, exc_info=error)


# Collective error handling: if one rank fails, all ranks learn of it and end with the same exit
# code.
#
# The first rank that failed raises its own error and logs why. The others raise `ElsewhereError`,
# with the same exit code and without output (docs/decisions/0013).


def everywhere(ranks: Communicator, work: Callable[[], T]) -> T:
    """Run `work` on every rank and return the own result if it succeeded on all ranks.

    Args:
        ranks: all ranks; each of them calls this.
        work: must not communicate with other ranks, which may have failed.
    """
    value, failure = _attempt(work)
    codes = ranks.collect(None if failure is None else _code(failure))
    _raise_first(ranks, codes, failure)
    return value  # type: ignore[return-value]


def on_root(ranks: Communicator, work: Callable[[], T]) -> T:
    """Run `work` on rank 0 and return its result on every rank.

    Args:
        ranks: all ranks; each of them calls this.
        work: called on rank 0 only; its result is pickled.
    """
    value, failure = _attempt(work) if ranks.rank == 0 else (None, None)
    code, value = ranks.tell((None if failure is None else _code(failure), value))
    _raise_first(ranks, [code], failure)
    return value  # type: ignore[return-value]


def end_alike(ranks: Communicator, code: int) -> ElsewhereError:
    """The error to raise on a rank after a failure elsewhere; afterwards no rank has to be
    aborted.
    """
    ranks.ending = True
    return ElsewhereError(ExitCode(code))


def _attempt(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return work(), None
    except Exception as error:  # noqa: BLE001  raised again when all ranks know
        return None, error


def _code(failure: Exception) -> int:
    return _exit_code(failure)


def _raise_first(ranks: Communicator, codes: list[int | None], failure: Exception | None) -> None:
    failed = [(rank, code) for rank, code in enumerate(codes) if code is not None]
    if not failed:
        return
    # All ranks see the same codes, so they agree on the rank that reports.
    first, code = failed[0]
    elsewhere = end_alike(ranks, code)
    raise failure if failure is not None and ranks.rank == first else elsewhere


# Message costs, measured because they decide how often ranks exchange halos.

_SHORT, _LONG = 8, 1 << 20  # bytes
_TIMES = 9
_TAG = 20


def measure_link(ranks: Communicator) -> Link:
    """Measure a message while all ranks send to the next one at the same time, as in an exchange;
    the slowest rank counts.

    Args:
        ranks: at least two ranks; each of them calls this.
    """
    short, long = _time_messages(ranks, _SHORT), _time_messages(ranks, _LONG)
    # Two sizes determine latency and bandwidth: the short message counts as latency alone.
    short, long = ranks.largest((short, long))
    return Link(short, max(long - short, 0.0) / (_LONG - _SHORT))


def _time_messages(ranks: Communicator, n_bytes: int) -> float:
    out, back = np.zeros(n_bytes, dtype=np.uint8), np.empty(n_bytes, dtype=np.uint8)

    seconds = []
    for _ in range(_TIMES):
        begin = time.perf_counter()
        # The receive is posted first, so that the message goes straight into its array.
        arriving = ranks.receive(back, (ranks.rank - 1) % ranks.size, _TAG)
        leaving = ranks.send(out, (ranks.rank + 1) % ranks.size, _TAG)
        arriving.wait()
        leaving.wait()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
