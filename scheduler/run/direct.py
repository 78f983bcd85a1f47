"""Direct messages: between ranks with a GPU each, planes go from GPU to GPU through NCCL.

All ranks open one group together, once in a process, since that takes seconds.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal
from weakref import WeakKeyDictionary

from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.steppers import nccl
from tetris_sim.scheduler.comm.agreement import everywhere
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.facts.shares import GpuMessages, Share
from tetris_sim.scheduler.machine.place import Place

log = logging.getLogger("tetris_sim")

# To open a group: what runs of two ranks with an H200 each took longer to start than by mail
# (2026-11-23).
OPENING_SECONDS = 3.0

_GROUPS: WeakKeyDictionary[Communicator, nccl.NcclGroup] = WeakKeyDictionary()


def possible_ways(
    asked: GpuMessages | Literal["auto"],
    shares: Sequence[Share],
    ranks: Communicator,
    *,
    direct: bool = True,
) -> tuple[GpuMessages, ...]:
    """How planes could go between GPUs of different ranks, what is likely to be best last. All
    ranks call this.

    Args:
        asked: what the configuration says.
        shares: of all workers.
        ranks: who takes part.
        direct: whether to open NCCL where it was not asked for, which takes seconds.

    Raises:
        UnsupportedError: NCCL was asked for, and cannot be had; on the first rank, and on others
            `ElsewhereError`.
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
    """Why NCCL cannot carry the planes of a run; None if it can. All ranks call this, and then the
    group is open.

    Args:
        shares: of all workers.
        ranks: who takes part.
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
            made.append(stack.enter_context(Place(share.threads, "gpu", share.number).opened()))
            library = nccl.import_nccl()
            made.append(library.get_unique_id() if ranks.rank == 0 else None)

        def join() -> None:
            _GROUPS[ranks] = nccl.NcclGroup(made[0], ranks.size, identity, ranks.rank)

        # Whoever joins waits for all others, so first all must be ready.
        if (why_not := _first_failure(ranks, prepare)) is not None:
            return why_not
        identity = ranks.tell(made[1])
        why_not = _first_failure(ranks, join)
    if why_not is not None:
        _GROUPS.pop(ranks, None)
    return why_not


def group_of(ranks: Communicator) -> nccl.NcclGroup:
    """The group that is open."""
    return _GROUPS[ranks]


def _refuse(why_not: str | None) -> None:
    if why_not is not None:
        msg = f"compute.gpu_messages is nccl, but {why_not}; leave it out, or set it to host"
        raise UnsupportedError(msg)


def _first_failure(ranks: Communicator, work: Callable[[], None]) -> str | None:
    """Why the first rank on which it fails could not do some work; None if all could."""
    why = None
    try:
        work()
    except Exception as error:  # whatever CUDA and NCCL say, other ways are left
        log.debug("no NCCL on rank %d", ranks.rank, exc_info=True)
        why = " ".join(str(error).split()) or type(error).__name__
    said = ranks.collect(why)
    return next((f"on rank {k}: {it}" for k, it in enumerate(said) if it is not None), None)
