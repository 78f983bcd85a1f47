"""Halo exchange between workers: its routes, its interface and the exchange within one process.

A route says which slab owns the planes of a halo (arithmetic only). Halos move only in
implementations of `Exchange`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.steppers import planes
from tetris_sim.gpu_kernels.steppers.planes import HANDLE_BYTES, GpuPlanes, Outbox, PostedPlanes
from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.method import Box, EdgePlanes, Fetch, Snapshots
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.comm.communicator import Communicator, Pending, everywhere
from tetris_sim.scheduler.facts.shares import GpuMessages, Share
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.workers.worker import Worker

Read = Callable[[Box], Field]  # a box of global indices -> its points, (n_fields, ...)


@dataclass
class Traffic:
    """Messages between ranks, as sent by this rank.

    Attributes:
        messages: number of messages sent.
        bytes: total size of these messages.
    """

    messages: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class UnderWay:
    """Halos in transit.

    Attributes:
        axis: axis along which they move.
        end: waits for the halos and stores them; afterwards every halo holds the values that its
            owner had when the exchange began. Called once.
    """

    axis: int
    end: Callable[[], None]


class Exchange(Protocol):
    """Interface for moving halos and parts of the state between workers.

    `begin`, its end and `swap` are collective and called by all ranks at the same step. `gather` is
    called by rank 0 alone, inside `lead`, while the other ranks answer.

    Attributes:
        traffic: messages so far.
        waits: whether the host waits in an exchange; otherwise only GPUs wait, on work enqueued
            before.
    """

    traffic: Traffic
    waits: bool

    def begin(self, workers: Sequence[Worker]) -> UnderWay | None:
        """Take each worker's edges and send them.

        Axes are exchanged one after the other, and edges include the halos just received, so
        corners need no messages of their own. On return the halos of all axes except the last one
        that is cut are in place. In the meantime steppers may advance points that need no halo of
        that axis (`InnerFirst`).

        Returns:
            The halos in transit along the last axis that is cut; None if there are none.
        """

    def swap(self, workers: Sequence[Worker]) -> None:
        """Exchange all halos: begin and end.

        Afterwards every halo holds the values that its owner had, so each worker may advance
        `time_block` steps alone.
        """

    def lead(self, workers: Sequence[Worker], work: Callable[[], None]) -> None:
        """Run `work` on rank 0, in which it may gather the state; the other ranks answer until it
        is done.

        If the work fails, rank 0 raises its error and the other ranks raise `ElsewhereError`.
        """

    def gather(self, workers: Sequence[Worker], box: Box) -> Field:
        """The values of the state inside `box`, of shape (n_fields, ...)."""


class LocalExchange:
    """The exchange between the workers of one process."""

    waits = True

    def __init__(self, problem: Problem, slabs: Sequence[Slab]) -> None:
        self._problem = problem
        self._routes = [routes for routes in find_routes(problem, slabs) if routes]
        self.traffic = Traffic()

    def begin(self, workers: Sequence[Worker]) -> UnderWay | None:
        """Axis by axis: take all edges, then set all halos. The halos of the last axis are left to
        `end`.
        """
        under_way = None
        for routes in self._routes:
            # Edges of this axis include the halos of the axes before, which must be stored first.
            if under_way is not None:
                under_way.end()
            taken = [(it, workers[it.sender].stepper.edge(it.axis, it.taken)) for it in routes]
            under_way = UnderWay(routes[0].axis, partial(_set_halos, workers, taken))
        return under_way

    def swap(self, workers: Sequence[Worker]) -> None:
        """Exchange all halos."""
        if (under_way := self.begin(workers)) is not None:
            under_way.end()

    def lead(self, workers: Sequence[Worker], work: Callable[[], None]) -> None:
        """Run `work`; there are no other ranks."""
        work()

    def gather(self, workers: Sequence[Worker], box: Box) -> Field:
        """Collect the parts of the box from the workers that own them."""
        parts = [
            (part, worker.stepper.interior(part))
            for worker in workers
            if (part := overlap(worker.stepper.slab, box))
        ]
        return join(self._problem, box, parts)


def _set_halos(workers: Sequence[Worker], taken: Sequence[tuple[Route, EdgePlanes]]) -> None:
    for route, edges in taken:
        workers[route.receiver].stepper.set_halo(route.axis, route.given, edges)


def keep(problem: Problem, workers: Sequence[Worker]) -> Fetch | None:
    """Take a snapshot of the state on the devices of all workers: returns a function that fetches
    it, of shape (n_fields, n0, ...), while the run continues; None if a device cannot.
    """
    fetches: list[tuple[Box, Fetch]] = []
    for worker in workers:
        stepper = worker.stepper
        fetch = stepper.kept() if worker.keeps and isinstance(stepper, Snapshots) else None
        if fetch is None:
            return None
        fetches.append((box_of(worker), fetch))

    whole = tuple((0, n) for n in problem.grid.shape)
    return lambda: join(problem, whole, [(box, fetch()) for box, fetch in fetches])


def box_of(worker: Worker) -> Box:
    """Range of the points that a worker owns, in global indices."""
    slab = worker.stepper.slab
    return tuple(zip(slab.start, slab.stop, strict=True))


def overlap(slab: Slab, box: Box) -> Box | None:
    """The part of a box inside a slab; None if they do not overlap."""
    inside = tuple(
        (max(low, start), min(high, stop))
        for (low, high), start, stop in zip(box, slab.start, slab.stop, strict=True)
    )
    return inside if all(low < high for low, high in inside) else None


def join(problem: Problem, box: Box, parts: Sequence[tuple[Box, Field]]) -> Field:
    """One array from the parts of a box."""
    # A single part that is the whole box needs no copy.
    if len(parts) == 1 and parts[0][0] == box:
        return parts[0][1]
    whole = np.empty((problem.n_fields, *(high - low for low, high in box)), dtype=problem.dtype)
    for inside, values in parts:
        part = tuple(slice(a - low, b - low) for (a, b), (low, _) in zip(inside, box, strict=True))
        whole[(slice(None), *part)] = values
    return whole


@dataclass(frozen=True)
class Route:
    """The way of some planes.

    Attributes:
        axis: the one along which they go.
        sender: number of the slab whose edge is taken.
        taken: the side it is taken from.
        receiver: number of the slab whose halo it becomes.
        given: the side where that is.
    """

    axis: int
    sender: int
    taken: Side
    receiver: int
    given: Side


def find_routes(problem: Problem, slabs: Sequence[Slab]) -> list[list[Route]]:
    """Per axis, every halo and the slab that owns its planes; in the same order on every rank."""
    return [_routes_along(axis, n, slabs) for axis, n in enumerate(problem.grid.shape)]


def _routes_along(axis: int, n_planes: int, slabs: Sequence[Slab]) -> list[Route]:
    lows = {_corner(slab.start, slab, axis): number for number, slab in enumerate(slabs)}
    highs = {_corner(slab.stop, slab, axis): number for number, slab in enumerate(slabs)}

    routes: list[Route] = []
    for receiver, slab in enumerate(slabs):
        low, high = slab.halo[axis]
        if low:
            wanted = _corner(slab.start, slab, axis, or_else={0: n_planes})
            sender = _look_up(highs, wanted, slab, axis, "low")
            routes.append(Route(axis, sender, "high", receiver, "low"))
        if high:
            wanted = _corner(slab.stop, slab, axis, or_else={n_planes: 0})
            sender = _look_up(lows, wanted, slab, axis, "high")
            routes.append(Route(axis, sender, "low", receiver, "high"))
    return routes


def _corner(
    ends: tuple[int, ...], slab: Slab, axis: int, or_else: dict[int, int] | None = None
) -> tuple[tuple[int, ...], ...]:
    """Intersect a side of a slab with the side it touches: the cut plane, and the ranges
    along it.
    """
    plane = ends[axis] if or_else is None else or_else.get(ends[axis], ends[axis])
    start, stop = (bounds[:axis] + bounds[axis + 1 :] for bounds in (slab.start, slab.stop))
    return (plane,), start, stop


def _look_up(
    sides: dict[tuple[tuple[int, ...], ...], int],
    wanted: tuple[tuple[int, ...], ...],
    slab: Slab,
    axis: int,
    side: Side,
) -> int:
    if wanted not in sides:
        msg = f"no slab lies beyond the {side} side of {slab} along axis {axis}"
        raise ValueError(msg)
    return sides[wanted]


# Transfers between GPUs of different ranks: through NCCL, or through memory that two processes on
# one computer share.
#
# All ranks open one NCCL group together, once per process, since that takes seconds
# (docs/decisions/0047).

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
