"""Halo exchange between the workers of many ranks, and collection of the state on the rank that
writes files.

Planes are copied between workers of one rank and sent between ranks, axis by axis: receives are
posted first, then edges are sent, then arrived halos are stored. Before the halos of the last axis
are stored, steppers may begin their block, and GPUs do so before their edges are sent. While rank 0
writes, the other ranks answer its requests, so that no rank ever holds more of the state than its
own part and one box.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tetris_sim.errors import ExitCode, TetrisError
from tetris_sim.gpu_kernels.steppers.planes import GpuPlanes, NcclGroup
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.method import Box, EdgePlanes
from tetris_sim.model.problem import Field, Problem
from tetris_sim.scheduler.comm.communicator import Communicator, Pending, end_alike
from tetris_sim.scheduler.facts.shares import GpuMessages, Share
from tetris_sim.scheduler.workers.exchange import (
    Exchange,
    LocalExchange,
    PeerTransfer,
    Route,
    Traffic,
    UnderWay,
    find_routes,
    group_of,
    join,
    overlap,
)
from tetris_sim.scheduler.workers.worker import Worker

_QUESTION, _ANSWER = 10, 11  # tags; those of halos are 0 to 5
_DONE, _BOX = range(2)  # kinds of requests
_WORDS = 8  # of a request: its kind, and the box or the exit code


def make_exchange(
    problem: Problem,
    shares: Sequence[Share],
    ranks: Communicator,
    *,
    gpu_messages: GpuMessages = "host",
) -> Exchange:
    """The exchange between all workers of a plan; see the classes for the arguments."""
    slabs = [share.slab for share in shares]
    if ranks.size == 1:
        return LocalExchange(problem, slabs)
    return RankExchange(problem, shares, ranks, gpu_messages=gpu_messages)


class RankExchange:
    """Exchange between the workers of many ranks; see the protocol `Exchange`.

    Args:
        problem: problem that is advanced.
        shares: shares of all workers on all ranks.
        ranks: the ranks of the run.
        gpu_messages: transport of planes between GPUs of different ranks. "mpi" requires an MPI
            library that accepts GPU memory, "nccl" that `why_not_direct` has found no obstacle.
    """

    def __init__(
        self,
        problem: Problem,
        shares: Sequence[Share],
        ranks: Communicator,
        *,
        gpu_messages: GpuMessages = "host",
    ) -> None:
        self._problem, self._shares, self._ranks = problem, shares, ranks
        self._mpi_reads_gpus = gpu_messages == "mpi"
        self._direct = group_of(ranks) if gpu_messages == "nccl" else None
        self.waits = self._direct is None
        self._buffers: dict[tuple[Route, str], Any] = {}
        self._slabs = [share.slab for share in shares]
        self._owners = [share.rank for share in shares]

        # Number of this rank's worker for each of its slabs.
        mine = [number for number, owner in enumerate(self._owners) if owner == ranks.rank]
        self._worker_of = {number: worker for worker, number in enumerate(mine)}

        self._routes = [routes for routes in find_routes(problem, self._slabs) if routes]
        arriving = [route for way in self._routes for route in way if self._arrives(route)]
        self._halos = {route: self._new_halo(route) for route in arriving}
        self.traffic = Traffic()
        self._neighbours = frozenset(ranks.neighbours())
        self._mail: PeerTransfer | None = None

    def begin(self, workers: Sequence[Worker]) -> UnderWay | None:
        """Axis by axis: send all edges, then set all halos. The halos of the last axis are left to
        `end`.
        """
        # Peer transfers are negotiated at the first exchange, when all steppers exist.
        if self._mail is None and self._direct is None:
            self._mail = self._agree_on_mail(workers)
        under_way = None
        for routes in self._routes:
            if under_way is not None:
                under_way.end()
            if self._direct is not None:
                under_way = self._begin_directly(routes, workers, self._direct)
            else:
                assert self._mail is not None
                under_way = self._begin_axis(routes, workers, self._mail)
        return under_way

    def swap(self, workers: Sequence[Worker]) -> None:
        """Exchange all halos."""
        if (under_way := self.begin(workers)) is not None:
            under_way.end()

    def lead(self, workers: Sequence[Worker], work: Callable[[], None]) -> None:
        """Run `work` on rank 0 and answer its requests on the others."""
        if self._ranks.rank != 0:
            self._serve(workers)
            return
        # The others leave `_serve` only when they are told the exit code, so it is sent in every
        # case.
        try:
            work()
        except Exception as error:
            code = error.exit_code if isinstance(error, TetrisError) else ExitCode.INTERNAL
            self._ask_all([_DONE, int(code)])
            self._ranks.ending = True
            raise
        self._ask_all([_DONE, int(ExitCode.OK)])

    def gather(self, workers: Sequence[Worker], box: Box) -> Field:
        """Collect the parts of the box from the ranks that own them; only for rank 0."""
        parts, messages, asked = [], [], set()
        question = [_BOX, *(bound for pair in box for bound in pair)]
        for slab, owner in zip(self._slabs, self._owners, strict=True):
            inside = overlap(slab, box)
            if inside is None or owner == self._ranks.rank:
                continue
            values = self._new_field(inside)
            messages.append(self._ranks.receive(values, owner, _ANSWER))
            parts.append((inside, values))
            if owner not in asked:  # one request per rank, answered for each of its slabs
                messages.append(self._ask(owner, question))
                asked.add(owner)

        # Own parts are read while the others' messages are in transit.
        own = [(part, worker) for worker in workers if (part := overlap(worker.stepper.slab, box))]
        parts += [(part, worker.stepper.interior(part)) for part, worker in own]
        for message in messages:
            message.wait()
        return join(self._problem, box, parts)

    def _begin_axis(
        self, routes: Sequence[Route], workers: Sequence[Worker], mail: PeerTransfer
    ) -> UnderWay:
        # Receives are posted first, and edges of all workers are taken before any halo is set.
        coming = [route for route in routes if self._arrives(route)]
        by_message = [route for route in coming if not mail.arrives(route)]
        arriving = [(route, *self._receive(route, workers)) for route in by_message]
        edges = [(it, self._edge(it, workers)) for it in routes if self._leaves(it)]
        copied = [(it, self._edge(it, workers)) for it in routes if self._stays(it)]

        # Edges of a GPU are sent after its next work has been enqueued, so that it does not idle
        # meanwhile. MPI that reads GPU memory is the exception: that memory must not change, so
        # those edges are sent at once.
        late, soon = [], []
        for route, edge in edges:
            if not isinstance(edge, GpuPlanes) or self._mpi_reads_gpus:
                soon.append((route, edge))
                continue
            late.append((route, edge))
            if not mail.leaves(route):
                edge.leave()
        leaving = [self._send(route, edge, mail) for route, edge in soon]

        def end() -> None:
            """Send the late edges, then set the halos; those from other ranks as they arrive."""
            leaving.extend(self._send(route, edge, mail) for route, edge in late)
            for route, planes in copied:
                self._set_halo(route, workers, planes)
            for route, message, planes in arriving:
                message.wait()
                self._set_halo(route, workers, planes)
            for route in coming:
                if mail.arrives(route):
                    self._take_mail(route, workers)
            for message in leaving:
                message.wait()

        return UnderWay(routes[0].axis, end)

    def _begin_directly(
        self, routes: Sequence[Route], workers: Sequence[Worker], direct: NcclGroup
    ) -> UnderWay:
        """Begin an exchange through NCCL, in which the host does not wait."""
        # NCCL matches sends and receives by their order: all ranks list the routes in the same
        # order.
        coming = [route for route in routes if self._arrives(route)]
        going = [route for route in routes if self._leaves(route)]
        copied = [(it, self._edge(it, workers)) for it in routes if self._stays(it)]

        leaving = []
        for route in going:
            edge = self._edge(route, workers)
            assert isinstance(edge, GpuPlanes)
            buffer = self._buffer(route, "from", edge.shape, workers)
            leaving.append((edge, buffer, self._owners[route.receiver]))
            self.traffic.messages += 1
            self.traffic.bytes += edge.nbytes
        arriving = [
            (
                self._buffer(route, "to", self._halos[route].shape, workers),
                self._owners[route.sender],
            )
            for route in coming
        ]
        arrived = direct.swap(workers[0].device, leaving, arriving)

        def end() -> None:
            for route, planes in [*copied, *zip(coming, arrived, strict=True)]:
                self._set_halo(route, workers, planes)

        return UnderWay(routes[0].axis, end)

    def _buffer(
        self, route: Route, way: str, shape: tuple[int, ...], workers: Sequence[Worker]
    ) -> Any:
        """Buffer in GPU memory for planes in transit, allocated once per route and direction."""
        if (route, way) not in self._buffers:
            with workers[0].device.use() as cupy:
                self._buffers[route, way] = cupy.empty(shape, self._problem.dtype)
        return self._buffers[route, way]

    def _serve(self, workers: Sequence[Worker]) -> None:
        # Requests of rank 0: the kind, then the exit code or the bounds of a box.
        question = np.empty(_WORDS, dtype=np.int64)
        while True:
            self._ranks.receive(question, 0, _QUESTION).wait()
            about, *rest = question.tolist()

            if about == _DONE and rest[0] != ExitCode.OK:
                raise end_alike(self._ranks, rest[0])
            if about == _DONE:
                return

            ndim = self._problem.grid.ndim
            # Bounds come in pairs: low and high of each axis.
            box = tuple(zip(rest[0 : 2 * ndim : 2], rest[1 : 2 * ndim : 2], strict=True))
            for worker in workers:
                if (part := overlap(worker.stepper.slab, box)) is not None:
                    values = np.ascontiguousarray(worker.stepper.interior(part))
                    self._ranks.send(values, 0, _ANSWER).wait()

    def _ask(self, rank: int, words: Sequence[int]) -> Pending:
        question = np.zeros(_WORDS, dtype=np.int64)
        question[: len(words)] = words
        return self._ranks.send(question, rank, _QUESTION)

    def _ask_all(self, words: Sequence[int]) -> None:
        for message in [self._ask(rank, words) for rank in range(1, self._ranks.size)]:
            message.wait()

    def _arrives(self, route: Route) -> bool:
        return route.receiver in self._worker_of and route.sender not in self._worker_of

    def _leaves(self, route: Route) -> bool:
        return route.sender in self._worker_of and route.receiver not in self._worker_of

    def _stays(self, route: Route) -> bool:
        return route.sender in self._worker_of and route.receiver in self._worker_of

    def _edge(self, route: Route, workers: Sequence[Worker]) -> EdgePlanes:
        return workers[self._worker_of[route.sender]].stepper.edge(route.axis, route.taken)

    def _set_halo(self, route: Route, workers: Sequence[Worker], planes: EdgePlanes) -> None:
        workers[self._worker_of[route.receiver]].stepper.set_halo(route.axis, route.given, planes)

    def _receive(self, route: Route, workers: Sequence[Worker]) -> tuple[Pending, EdgePlanes]:
        """(the posted receive, the planes that it fills)."""
        memory = self._halos[route]
        planes: EdgePlanes = memory
        share, worker = self._shares[route.receiver], workers[self._worker_of[route.receiver]]
        # MPI writes straight into GPU memory, so the buffer is allocated on the worker's device.
        if self._mpi_reads_gpus and share.method.device == "gpu" and share.streamed is None:
            with worker.device.use() as cupy:
                memory = cupy.empty(memory.shape, memory.dtype)
            planes = GpuPlanes(worker.device, memory)
        return self._ranks.receive(memory, self._owners[route.sender], _tag(route)), planes

    def _send(self, route: Route, edge: EdgePlanes, mail: PeerTransfer) -> Pending:
        to = self._owners[route.receiver]
        self.traffic.messages += 1
        self.traffic.bytes += edge.nbytes
        if mail.leaves(route):
            return mail.put(route, edge, to)
        if self._mpi_reads_gpus and isinstance(edge, GpuPlanes):
            return self._ranks.send(edge.there(), to, _tag(route))
        return self._ranks.send(np.ascontiguousarray(edge), to, _tag(route))

    def _take_mail(self, route: Route, workers: Sequence[Worker]) -> None:
        mail, source = self._mail, self._owners[route.sender]
        assert mail is not None
        self._set_halo(route, workers, mail.wait_for(route, self._slabs[route.receiver], source))
        # The sender may reuse its outbox only after the planes have been copied.
        workers[self._worker_of[route.receiver]].stepper.wait()
        mail.taken(route, source)

    def _agree_on_mail(self, workers: Sequence[Worker]) -> PeerTransfer:
        """Negotiate peer transfers between GPUs of different ranks on one computer."""
        mail = PeerTransfer(self._problem, self._ranks)
        possible = [
            route for routes in self._routes for route in routes if self._could_be_mail(route)
        ]

        leaving = {
            route: (self._edge(route, workers), self._owners[route.receiver])
            for route in possible
            if self._leaves(route)
        }
        arriving = {
            route: (self._shares[route.receiver], self._owners[route.sender])
            for route in possible
            if self._arrives(route)
        }
        mail.agree(leaving, arriving)
        return mail

    def _could_be_mail(self, route: Route) -> bool:
        ends = [self._shares[number] for number in (route.sender, route.receiver)]
        resident = all(share.method.device == "gpu" and share.streamed is None for share in ends)
        return resident and all(share.rank in self._neighbours for share in ends)

    def _new_halo(self, route: Route) -> Field:
        return self._new_field(
            self._slabs[route.receiver].halo_ranges(route.axis, SIDES.index(route.given))
        )

    def _new_field(self, box: Box) -> Field:
        shape = (self._problem.n_fields, *(high - low for low, high in box))
        return np.empty(shape, dtype=self._problem.dtype)


def _tag(route: Route) -> int:
    # Two ranks may exchange over both sides of an axis, for example with two ranks and periodicity:
    # the side tells their messages apart.
    return 2 * route.axis + SIDES.index(route.given)
