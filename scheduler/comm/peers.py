"""Peers: how many ranks the launcher started, which are still alive, and an end to waiting for one
that is not.

Every rank sends beats, datagrams of a few bytes, to rank 0 and to the ranks at distances of powers
of two. A thread of compiled code sends them, which needs no interpreter lock: a rank that compiles
or writes for long goes on beating, and one that is frozen, or whose computer or cable is lost, does
not. A second thread listens. Silence is counted in turns of the listener: what a suspended job
sleeps through does not count.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import platform
import secrets
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tetris_sim.errors import ExitCode, StopRequested

log = logging.getLogger("tetris_sim")

# Time that MPI has for its start, before anybody can have read `run.mpi_timeout` [s].
OPENING_SECONDS = 300.0
TIMEOUT_SECONDS = 60.0  # the default of `run.mpi_timeout`
_BEATS = 16  # and turns of the listener, per timeout
_LONGEST_PAUSE = 1.0  # between two beats [s]
# Of the timeout, what remains for an orderly end: a sentence, then all are aborted.
_ENDING, _LONGEST_ENDING = 0.25, 5.0
_GREETING, _GREETING_PAUSE = 2.0, 0.01  # time for the first beats, and between tries [s]
_GOODBYES = 3  # datagrams may be lost
_SECRET = 16  # bytes that strangers do not know
Card = tuple[bytes, int, Sequence[bytes], str]  # a secret, the port, addresses, the host
_WORD = struct.Struct("=16siB")  # secret, rank, whether it leaves
# Asks for the address of a network interface: of macOS and Linux.
_SIOCGIFADDR = 0xC0206921 if sys.platform == "darwin" else 0x8915
# A message is not waited for, and a missing reader raises no signal: Linux's 0x4040.
_FLAGS = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)

# What Hydra, the launcher of MPICH and Intel MPI, is told by a process that ends the job (PMI 1).
# It would end with the code of those it kills if it learnt of their ends first.
_ABORT = f"cmd=abort exitcode={int(ExitCode.REQUEUE)}\n".encode()

# Compiled, because Python code stands still while another thread holds the interpreter lock: for
# minutes in a write of HDF5, for ever in a start of MPI that hangs. `pace` holds the pause [ms],
# the number of addresses, the pauses until the process has to end (0: none), the length of its last
# words, whether the loop has begun, and where the launcher listens (-1: nowhere).
_BEAT = """
from numba import types

from tetris_sim.cpu_kernels.compiled.intrinsics import njit

poll = types.ExternalFunction("poll", types.int32(types.intp, types.uintp, types.int32))
sendto = types.ExternalFunction("sendto", types.intp(
    types.int32, types.intp, types.uintp, types.int32, types.intp, types.uint32))
write = types.ExternalFunction("write", types.intp(types.int32, types.intp, types.uintp))
leave = types.ExternalFunction("_exit", types.void(types.int32))


@njit("(int32, uint8[::1], uint8[:, ::1], int32[::1], int32[::1], uint8[::1])",
      nogil=True, cache=True)
def beat(socket, word, addresses, pace, ending, words):
    pace[4] = 1
    while poll(ending.ctypes.data, 1, pace[0]) <= 0:
        for k in range(pace[1]):
            to = addresses.ctypes.data + 16 * k
            sendto(socket, word.ctypes.data, word.size, FLAGS, to, 16)
        if pace[2] > 0:
            pace[2] -= 1
            if pace[2] == 0:
                write(2, words.ctypes.data, pace[3])
                if pace[5] >= 0:
                    write(pace[5], words.ctypes.data + pace[3], SIZE)
                leave(CODE)
""".replace("CODE", str(int(ExitCode.REQUEUE))).replace("FLAGS", hex(_FLAGS))
_BEAT = _BEAT.replace("SIZE", str(len(_ABORT)))
_PAUSE, _PEERS, _LEFT, _LENGTH, _BEGUN, _LAUNCHER = range(6)  # elements of `pace`
_WORDS = 1000  # most bytes of the last words


def count_ranks(environ: Mapping[str, str] | None = None) -> int:
    """How many MPI ranks the launcher started, from what MPICH, Open MPI, Intel MPI and Slurm tell
    their processes.
    """
    environ = os.environ if environ is None else environ
    names = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"]
    if (
        "PMIX_RANK" in environ
    ):  # srun --mpi=pmix; without it, a job of many tasks may run one process
        names.append("SLURM_STEP_NUM_TASKS")
    sizes = [environ.get(name, "") for name in names]
    return max([1, *(int(size) for size in sizes if size.isdigit())])


def launched_rank(environ: Mapping[str, str] | None = None) -> int:
    """Which of the launcher's ranks this process is, before MPI is initialised; 0 without a
    launcher.
    """
    environ = os.environ if environ is None else environ
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK")
    ranks = [environ.get(name, "") for name in names]
    return next((int(rank) for rank in ranks if rank.isdigit()), 0)


def launcher_listens(environ: Mapping[str, str] | None = None) -> int:
    """The file descriptor on which Hydra takes PMI 1 commands of this process; -1 without it.

    Slurm names one too, but speaks another language there, and no `PMI_HOSTNAME`.
    """
    environ = os.environ if environ is None else environ
    found = environ.get("PMI_FD", "") if "PMI_HOSTNAME" in environ else ""
    return int(found) if found.isdigit() else -1


def watched_by(rank: int, size: int) -> tuple[int, ...]:
    """The ranks whose beats a rank expects, and which expect its own.

    >>> watched_by(3, 4)
    (0, 1, 2)
    >>> watched_by(5, 100)
    (0, 1, 3, 4, 6, 7, 9, 13, 21, 37, 41, 69, 73, 89, 97)
    >>> len(watched_by(0, 100))
    99
    """
    if rank == 0:
        return tuple(range(1, size))
    distances = [1 << k for k in range(size.bit_length())]
    near = {(rank + sign * it) % size for it in distances for sign in (1, -1)}
    return tuple(sorted((near | {0}) - {rank}))


class Heart:
    """The beats of this rank and of its peers, and an end to what hangs.

    It beats alone until `join`; `close` ends it.

    Args:
        n_ranks: how many ranks the launcher has started.
    """

    def __init__(self, n_ranks: int) -> None:
        import numpy as np

        from tetris_sim.cpu_kernels.compiled.generate import compiled_module

        self._rank, self._lost, self._timeout = 0, "", TIMEOUT_SECONDS
        self._hosts: dict[int, str] = {}
        self._silent: dict[int, float] = {}  # rank -> seconds since its last beat
        self._found: dict[int, tuple[str, int]] = {}  # rank -> where its beats come from
        self._socket, self._port = _open_port()

        # Shared with compiled code.
        self._word = np.zeros(_WORD.size, dtype=np.uint8)
        self._addresses = np.zeros((n_ranks, 16), dtype=np.uint8)
        self._pace = np.array(
            [1000 * _LONGEST_PAUSE, 0, 0, 0, 0, launcher_listens()], dtype=np.int32
        )
        self._words = np.zeros(_WORDS + len(_ABORT), dtype=np.uint8)
        read, self._ending = os.pipe()
        self._ends = np.array([read, select.POLLIN], dtype=np.int32)  # struct pollfd
        self._closing = threading.Event()
        shared = self._word, self._addresses, self._pace, self._ends, self._words
        self._threads = [
            threading.Thread(
                target=compiled_module(_BEAT).beat,
                args=(self._socket.fileno(), *shared),
                daemon=True,
            )
        ]
        self._threads[0].start()
        # The way into compiled code needs the interpreter lock, which MPI may not give back.
        while not self._pace[_BEGUN] and self._threads[0].is_alive():
            time.sleep(_GREETING_PAUSE)

    @property
    def timeout(self) -> float:
        """Seconds after the last beat of a rank within which this one ends."""
        return self._timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._timeout = seconds
        self._pace[_PAUSE] = max(1, int(1000 * min(seconds / _BEATS, _LONGEST_PAUSE)))

    def join(self, rank: int, size: int, collect: Callable[[Card], Sequence[Card]]) -> None:
        """Find the peers and expect their beats from now on. All ranks call this.

        Args:
            rank: number of this rank.
            size: number of ranks.
            collect: gathers a value of every rank.
        """
        # Rank 0's secret counts: what arrives here from another run is passed over.
        cards = collect(
            (secrets.token_bytes(_SECRET), self._port, own_addresses(), platform.node())
        )
        self._rank, self._secret = rank, cards[0][0]
        self._hosts = {peer: cards[peer][3] for peer in watched_by(rank, size)}
        self._greet({peer: cards[peer][1:3] for peer in self._hosts})

        self._word[:] = list(_WORD.pack(self._secret, rank, 0))
        for k, (host, port) in enumerate(self._found.values()):
            # struct sockaddr_in, which macOS begins with its length; the port is in network order.
            kind = struct.pack("=H", socket.AF_INET)
            if sys.platform == "darwin":
                kind = bytes((16, socket.AF_INET))
            head = kind + struct.pack("!H", port)
            self._addresses[k, :8] = list(head + socket.inet_aton(host))
        self.timeout = self._timeout
        self._pace[_PEERS] = len(self._found)
        self._threads.append(threading.Thread(target=self._listen, daemon=True))
        self._threads[-1].start()

    def refuse_lost(self) -> None:
        """Raise `StopRequested` if a rank has been silent for too long."""
        if self._lost:
            raise StopRequested(self._lost, ExitCode.REQUEUE)

    @contextlib.contextmanager
    def ended_within(self, seconds: float, sentence: str) -> Iterator[None]:
        """End the process with code 75 and a sentence if the block takes longer [s]. Files are
        renamed into place when they are whole, so none of them is harmed.
        """
        words = f"tetris-sim: {sentence}\n".encode(errors="replace")[:_WORDS] if sentence else b""
        self._words[: len(words) + len(_ABORT)] = list(words + _ABORT)
        self._pace[_LENGTH] = len(words)
        self._pace[_LEFT] = max(1, int(1000 * seconds / self._pace[_PAUSE]))
        try:
            yield
        finally:
            self._pace[_LEFT] = 0

    def close(self) -> None:
        """Take leave of the peers, which expect nothing more from this rank, and stop."""
        self._closing.set()
        os.write(self._ending, b".")
        for thread in self._threads:
            thread.join()
        for _ in range(_GOODBYES if self._found else 0):
            self._send(_WORD.pack(self._secret, self._rank, 1), self._found.values())
        self._socket.close()
        os.close(self._ending)
        os.close(int(self._ends[0]))

    def _greet(self, addresses: Mapping[int, tuple[int, Sequence[bytes]]]) -> None:
        """Find out on which of its addresses each peer can be reached: those that its first beats
        come from.
        """
        begin, word = time.monotonic(), _WORD.pack(self._secret, self._rank, 0)
        while missing := [peer for peer in addresses if peer not in self._found]:
            if time.monotonic() > begin + _GREETING:
                break
            self._greet_once(word, addresses)
            self._hear()
            time.sleep(_GREETING_PAUSE)

        # Those who have been heard may not have heard this rank yet.
        self._greet_once(word, addresses)
        for peer in missing:
            log.warning(
                "No beats of rank %d on %s arrive at rank %d on %s (a firewall?): should it freeze "
                "or be lost, it would be waited for.",
                peer,
                self._hosts[peer],
                self._rank,
                platform.node(),
            )

    def _greet_once(
        self, word: bytes, addresses: Mapping[int, tuple[int, Sequence[bytes]]]
    ) -> None:
        self._send(
            word, [(socket.inet_ntoa(it), port) for port, own in addresses.values() for it in own]
        )

    def _send(self, word: bytes, addresses: Iterable[tuple[str, int]]) -> None:
        for address in addresses:
            with contextlib.suppress(OSError):  # no way there, or no room: the next one may arrive
                self._socket.sendto(word, address)

    def _listen(self) -> None:
        before = time.monotonic()
        while not self._closing.wait(turn := min(self.timeout / _BEATS, _LONGEST_PAUSE)):
            now = time.monotonic()
            passed, before = min(now - before, 2 * turn), now
            for peer in self._silent:
                self._silent[peer] += passed
            self._hear()

            spare = min(_ENDING * self.timeout, _LONGEST_ENDING)
            late = [it for it, silent in self._silent.items() if silent > self.timeout - spare]
            if not late:
                continue
            # One who sees it says so and ends the others, in most cases before they say it too.
            if self._rank == min({self._rank, *self._silent} - set(late)):
                self._end(late, 0.8 * spare)
            elif not self._closing.wait(0.4 * spare):
                self._end(late, 0.5 * spare)
            return

    def _end(self, late: Sequence[int], seconds: float) -> None:
        """Let whoever waits raise an exception; leave if that does not help, as when MPI hangs."""
        self._lost = self._why_lost(late)
        if not self._closing.wait(seconds):
            said = f"tetris-sim: rank {self._rank} on {platform.node()}: {self._lost}\n"
            # By the file, because a thread that hangs may hold the lock of a logger or a stream.
            os.write(2, said.encode(errors="replace"))
            if self._pace[_LAUNCHER] >= 0:
                os.write(int(self._pace[_LAUNCHER]), _ABORT)
            os._exit(ExitCode.REQUEUE)

    def _hear(self) -> None:
        """Take what has arrived."""
        with contextlib.suppress(OSError):  # nothing more is there
            while True:
                try:
                    word, place = self._socket.recvfrom(_WORD.size + 1)
                except ConnectionError:  # a peer has gone
                    continue
                if len(word) != _WORD.size:
                    continue

                # Words of others, and of other runs, are not heard.
                secret, rank, leaves = _WORD.unpack(word)
                if secret != self._secret or rank not in self._hosts:
                    continue
                self._found.setdefault(rank, place)
                self._silent[rank] = 0.0
                if leaves:
                    self._hosts.pop(rank)
                    self._silent.pop(rank)

    def _why_lost(self, late: Sequence[int]) -> str:
        who = " and ".join(f"rank {it} on {self._hosts[it]}" for it in late[:3])
        more = f" and {len(late) - 3} more" if len(late) > 3 else ""
        return (
            f"{who}{more} gave no sign of life for {self._silent[late[0]]:.0f} s: frozen, or the "
            "computer or the network is lost (run.mpi_timeout). The run ends; continue it from its "
            "last checkpoint with --resume auto"
        )


def _open_port() -> tuple[socket.socket, int]:
    """A socket for datagrams with its port, or where there is no IPv4 one that no one reaches."""
    port = 0
    try:
        found = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        found.bind(("", 0))
        port = found.getsockname()[1]
    except OSError:
        found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.setblocking(False)
    return found, port


def own_addresses() -> tuple[bytes, ...]:
    """The IPv4 addresses of this computer's network interfaces, four bytes each."""
    found = []
    any_socket, port = _open_port()
    with any_socket:
        for _, name in socket.if_nameindex() if port else ():
            request = struct.pack("256s", name.encode()[:15])
            with contextlib.suppress(OSError):  # an interface without an address
                found.append(fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)[20:24])
    return tuple(found)
