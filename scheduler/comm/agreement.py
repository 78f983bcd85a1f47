"""Agreement: ranks do something together, and if one of them fails, all of them know and end alike.

The first rank that failed raises its own error and says why. The others raise `ElsewhereError`,
with the same exit code and in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tetris_sim.errors import ElsewhereError, ExitCode, TetrisError
from tetris_sim.scheduler.comm.communicator import Communicator

T = TypeVar("T")


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
