"""Transfers between GPUs of different ranks: through NCCL, or through memory that two processes on
one computer share.

All ranks open one NCCL group together, once per process, since that takes seconds
(docs/decisions/0047).
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.steppers import planes
from tetris_sim.gpu_kernels.steppers.planes import HANDLE_BYTES, GpuPlanes, Outbox, PostedPlanes
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.method import EdgePlanes
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.comm.communicator import Communicator, Pending, everywhere
from tetris_sim.scheduler.facts.shares import GpuMessages, Share
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.workers.exchange import Route

log = logging.getLogger("tetris_sim")

# Time to open an NCCL group [s]: runs of two ranks with an H200 each took this much longer to start
# than with peer transfers (2026-11-23).
OPENING_SECONDS = 3.0

_GROUPS: WeakKeyDictionary[Communicator, planes.NcclGroup] = WeakKeyDictionary()


def possible_ways(
    asked: GpuMessages | Literal["auto"],
    shares: Sequence[Share],
    ranks: Communicator,
    *,
    direct: bool = True,
) -> tuple[GpuMessages, ...]:
    """Possible transports of planes between GPUs of different ranks, the one likely to be best
    last. All ranks call this.

    Args:
        asked: transport that the configuration requests.
        shares: shares of all workers.
        ranks: the ranks of the run.
        direct: whether to open NCCL even if it is not requested, which takes seconds.

    Raises:
        UnsupportedError: NCCL is requested but not available; other ranks raise `ElsewhereError`.
    """
    if not between_gpus(shares):
        return ("host",)
    if asked in ("host", "mpi"):
        return (asked,)

    if asked == "nccl":
        why_not = why_not_direct(shares, ranks)
        everywhere(ranks, functools.partial(_refuse, why_not))
        return ("nccl",)
    ways: list[GpuMessages] = ["host"]
    if ranks.takes_gpu_memory():
        ways.append("mpi")
    if (direct or ranks in _GROUPS) and why_not_direct(shares, ranks) is None:
        ways.append("nccl")
    return tuple(ways)


def between_gpus(shares: Sequence[Share]) -> bool:
    """Whether more than one rank has a GPU."""
    return len({share.rank for share in shares if share.method.device == "gpu"}) > 1


def why_not_direct(shares: Sequence[Share], ranks: Communicator) -> str | None:
    """The reason why NCCL cannot transport the planes of a run; None if it can, and then the group
    is open. All ranks call this.

    Args:
        shares: shares of all workers.
        ranks: the ranks of the run.
    """
    if any(it.method.device != "gpu" or it.streamed or it.simulated for it in shares):
        return "not everybody computes on a GPU that holds its slab"
    if sorted(share.rank for share in shares) != list(range(ranks.size)):
        return "NCCL wants one GPU of each rank"
    if ranks in _GROUPS:
        return None

    share = next(it for it in shares if it.rank == ranks.rank)
    with contextlib.ExitStack() as stack:
        made: list[Any] = []  # the GPU, the identity of the group

        def prepare() -> None:
            made.append(
                stack.enter_context(ComputeResource(share.threads, "gpu", share.number).opened())
            )
            library = planes.import_nccl()
            made.append(library.get_unique_id() if ranks.rank == 0 else None)

        def join() -> None:
            _GROUPS[ranks] = planes.NcclGroup(made[0], ranks.size, identity, ranks.rank)

        # Joining waits for all other ranks, so all must be ready before any of them joins.
        if (why_not := _first_failure(ranks, prepare)) is not None:
            return why_not
        identity = ranks.tell(made[1])
        why_not = _first_failure(ranks, join)
    # Some ranks may have joined a group that others failed to join: all forget it.
    if why_not is not None:
        _GROUPS.pop(ranks, None)
    return why_not


def group_of(ranks: Communicator) -> planes.NcclGroup:
    """The open NCCL group of these ranks."""
    return _GROUPS[ranks]


def _refuse(why_not: str | None) -> None:
    if why_not is not None:
        msg = f"compute.gpu_messages is nccl, but {why_not}; leave it out, or set it to host"
        raise UnsupportedError(msg)


def _first_failure(ranks: Communicator, work: Callable[[], None]) -> str | None:
    """Failure of the first rank on which `work` failed; None if it succeeded on all ranks."""
    why = None
    try:
        work()
    except Exception as error:  # whatever CUDA and NCCL raise, other transports remain
        log.debug("no NCCL on rank %d", ranks.rank, exc_info=True)
        why = " ".join(str(error).split()) or type(error).__name__
    said = ranks.collect(why)
    return next((f"on rank {k}: {it}" for k, it in enumerate(said) if it is not None), None)


# Peer transfers: planes go from GPU to GPU between ranks on one computer, without passing host
# memory.
#
# The possible routes are negotiated once: the sender opens an outbox
# (gpu_kernels/steppers/planes.py), and the receiver tries to open it as well. Where either cannot,
# planes are sent as messages.


_OFFER, _REPLY, _READY, _TAKEN = 20, 30, 40, 50  # tags, to which axis and side are added


class PeerTransfer:
    """The outboxes that this rank fills, and those that it empties."""

    def __init__(self, problem: Problem, ranks: Communicator) -> None:
        self._problem, self._ranks = problem, ranks
        self._outboxes: dict[Route, Outbox] = {}
        self._inboxes: dict[Route, bytes] = {}

    def agree(
        self,
        leaving: Mapping[Route, tuple[EdgePlanes, int]],
        arriving: Mapping[Route, tuple[Share, int]],
    ) -> None:
        """Negotiate which routes can be peer transfers; both ends of a route call this at the same
        time.

        Args:
            leaving: for each outgoing route, planes of the kind that will be sent, and the
                receiving rank.
            arriving: for each incoming route, the share of the receiving worker, and the sending
                rank.
        """
        offers = {route: _offer(planes) for route, (planes, _) in leaving.items()}
        pending = [
            self._send(_as_words(offers[route]), to, _OFFER, route)
            for route, (_, to) in leaving.items()
        ]

        # The receiver replies whether it could open the outbox.
        for route, (share, source) in arriving.items():
            handle = self._receive(1 + HANDLE_BYTES, source, _OFFER, route).tobytes()
            possible = handle[0] == 1 and _can_open(
                share, handle[1:], self._n_bytes(route, share.slab)
            )
            if possible:
                self._inboxes[route] = handle[1:]
            pending.append(self._send(np.array([possible], dtype=np.uint8), source, _REPLY, route))

        for route, (_, to) in leaving.items():
            outbox = offers[route]
            if self._receive(1, to, _REPLY, route)[0] and outbox is not None:
                self._outboxes[route] = outbox

        for message in pending:
            message.wait()
        if leaving or arriving:
            log.debug("%d of %d routes go from GPU to GPU", len(self._outboxes), len(leaving))

    def leaves(self, route: Route) -> bool:
        """Whether planes on this route leave through an outbox of this rank."""
        return route in self._outboxes

    def arrives(self, route: Route) -> bool:
        """Whether planes on this route arrive in an outbox of another rank."""
        return route in self._inboxes

    def put(self, route: Route, planes: EdgePlanes, to: int) -> Pending:
        """Fill an outbox; the returned message is done when the receiver has emptied it."""
        assert isinstance(planes, GpuPlanes)
        self._outboxes[route].put(planes)
        ready = self._send(np.ones(1, dtype=np.uint8), to, _READY, route)
        taken = self._ranks.receive(np.empty(1, dtype=np.uint8), to, _TAKEN + _number(route))
        return _Both(ready, taken)

    def wait_for(self, route: Route, slab: Slab, source: int) -> PostedPlanes:
        """Wait for the planes of a slab and return them."""
        self._receive(1, source, _READY, route)
        return PostedPlanes(self._inboxes[route], self._shape(route, slab), self._problem.dtype)

    def taken(self, route: Route, source: int) -> None:
        """Notify the sender that the planes have been copied."""
        self._send(np.ones(1, dtype=np.uint8), source, _TAKEN, route).wait()

    def _shape(self, route: Route, slab: Slab) -> tuple[int, ...]:
        ranges = slab.halo_ranges(route.axis, SIDES.index(route.given))
        return (self._problem.n_fields, *(high - low for low, high in ranges))

    def _n_bytes(self, route: Route, slab: Slab) -> int:
        return int(np.prod(self._shape(route, slab))) * self._problem.dtype.itemsize

    def _send(self, words: npt.NDArray[np.uint8], to: int, tag: int, route: Route) -> Pending:
        return self._ranks.send(words, to, tag + _number(route))

    def _receive(self, count: int, source: int, tag: int, route: Route) -> npt.NDArray[np.uint8]:
        words = np.empty(count, dtype=np.uint8)
        self._ranks.receive(words, source, tag + _number(route)).wait()
        return words


# Two messages as one.
class _Both:
    def __init__(self, *messages: Pending) -> None:
        self._messages = messages

    def wait(self) -> None:
        for message in self._messages:
            message.wait()


def _offer(planes: EdgePlanes) -> Outbox | None:
    if not isinstance(planes, GpuPlanes):
        return None
    try:
        return Outbox(planes)
    except Exception:  # whatever CUDA raises, messages remain
        log.debug("no outbox on GPU %d", planes.device.number, exc_info=True)
        return None


def _as_words(outbox: Outbox | None) -> npt.NDArray[np.uint8]:
    # First byte: whether there is an outbox; then its handle.
    words = np.zeros(1 + HANDLE_BYTES, dtype=np.uint8)
    if outbox is not None:
        words[0] = 1
        words[1:] = np.frombuffer(outbox.handle, dtype=np.uint8)
    return words


def _can_open(share: Share, handle: bytes, n_bytes: int) -> bool:
    """Whether the GPU of a worker can read an outbox, found by opening and closing it."""
    if share.method.device != "gpu":
        return False
    try:
        with ComputeResource(1, "gpu", share.number).opened() as device:
            device.open_shared(handle, n_bytes)
    except UnsupportedError:
        return False
    except Exception:  # as above
        log.debug("%s cannot open an outbox", share.worker, exc_info=True)
        return False
    return True


def _number(route: Route) -> int:
    return 2 * route.axis + SIDES.index(route.given)
