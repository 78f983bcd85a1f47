"""Mail: planes that go from rank to rank inside of one computer, from GPU to GPU, without a way
through host memory.

Which routes can do that is found out once: the sender opens an outbox
(gpu_kernels/steppers/mailbox.py), the receiver tries to open it too. Where one of them cannot,
planes are sent as messages.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.steppers.mailbox import HANDLE_BYTES, Outbox
from tetris_sim.gpu_kernels.steppers.planes import GpuPlanes, PostedPlanes
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.method import EdgePlanes
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.comm.communicator import Communicator, Pending
from tetris_sim.scheduler.facts.shares import Share
from tetris_sim.scheduler.machine.place import Place
from tetris_sim.scheduler.run.routes import Route

log = logging.getLogger("tetris_sim")

_OFFER, _REPLY, _READY, _TAKEN = 20, 30, 40, 50  # tags, to which axis and side are added


class Mail:
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
        """Find out which routes can be mail; both ends of a route name it here at the same time.

        Args:
            leaving: planes such as this rank sends, and to which rank.
            arriving: the worker of this rank that gets them, and from which rank.
        """
        offers = {route: _offer(planes) for route, (planes, _) in leaving.items()}
        pending = [
            self._send(_as_words(offers[route]), to, _OFFER, route)
            for route, (_, to) in leaving.items()
        ]

        # The receiver says whether it could open what it was offered.
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
        """Whether planes of this rank are put into an outbox."""
        return route in self._outboxes

    def arrives(self, route: Route) -> bool:
        """Whether planes for this rank lie in an outbox."""
        return route in self._inboxes

    def put(self, route: Route, planes: EdgePlanes, to: int) -> Pending:
        """Fill an outbox; what is returned is done when the receiver has emptied it."""
        assert isinstance(planes, GpuPlanes)
        self._outboxes[route].put(planes)
        ready = self._send(np.ones(1, dtype=np.uint8), to, _READY, route)
        taken = self._ranks.receive(np.empty(1, dtype=np.uint8), to, _TAKEN + _number(route))
        return _Both(ready, taken)

    def wait_for(self, route: Route, slab: Slab, source: int) -> PostedPlanes:
        """The planes for a slab, when they are there."""
        self._receive(1, source, _READY, route)
        return PostedPlanes(self._inboxes[route], self._shape(route, slab), self._problem.dtype)

    def taken(self, route: Route, source: int) -> None:
        """Say that the planes have been copied."""
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
    except Exception:  # whatever CUDA says, messages are left
        log.debug("no outbox on GPU %d", planes.device.number, exc_info=True)
        return None


def _as_words(outbox: Outbox | None) -> npt.NDArray[np.uint8]:
    words = np.zeros(1 + HANDLE_BYTES, dtype=np.uint8)
    if outbox is not None:
        words[0] = 1
        words[1:] = np.frombuffer(outbox.handle, dtype=np.uint8)
    return words


def _can_open(share: Share, handle: bytes, n_bytes: int) -> bool:
    """Whether the GPU of a worker can read an outbox: by opening it, and closing it again."""
    if share.method.device != "gpu":
        return False
    try:
        with Place(1, "gpu", share.number).opened() as device:
            device.open_shared(handle, n_bytes)
    except UnsupportedError:
        return False
    except Exception:  # as above
        log.debug("%s cannot open an outbox", share.worker, exc_info=True)
        return False
    return True


def _number(route: Route) -> int:
    return 2 * route.axis + SIDES.index(route.given)
