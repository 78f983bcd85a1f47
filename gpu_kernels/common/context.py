"""Which GPU a thread is working on, to refuse what would land on another one.

CUDA loads compiled code, and makes events, for whichever GPU is the thread's at that moment; asked
for outside of `GpuDevice.use` that is the first GPU. With one GPU nobody notices, with two of them
the second one fails (CUDA_ERROR_INVALID_HANDLE). A record of our own notices with any number.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class ContextError(RuntimeError):
    """A mistake of ours: a GPU was asked for something outside of its `use()`."""


class _Inside(threading.local):
    """Numbers of the GPUs that a thread uses, the innermost last."""

    def __init__(self) -> None:
        self.numbers: list[int] = []


_INSIDE = _Inside()


@contextlib.contextmanager
def inside(number: int) -> Iterator[None]:
    """Note that this thread works on a GPU."""
    _INSIDE.numbers.append(number)
    try:
        yield
    finally:
        _INSIDE.numbers.pop()


def current() -> int | None:
    """The GPU that this thread works on; None outside of any `use()`."""
    return _INSIDE.numbers[-1] if _INSIDE.numbers else None


def require_inside(number: int, what: str) -> None:
    """Refuse what is asked of a GPU that is not the one this thread works on.

    Raises:
        ContextError: it is not.
    """
    here = current()
    if here != number:
        where = "outside of any GPU's use()" if here is None else f"inside use() of GPU {here}"
        msg = (
            f"{what} was asked of GPU {number} {where}: it would belong to another GPU; this is "
            "an error of the program: the call must move into `with device.use()` of that GPU"
        )
        raise ContextError(msg)
