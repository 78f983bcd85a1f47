"""HostGpu: a `GpuDevice` with the memory of the host and emulated kernels, to test steppers without
a GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.support.emulator.emulation import at, emulate
from tetris_sim.gpu_kernels.common.device import current_gpu, inside, require_inside

Work = Callable[[], None]
SHARED: dict[bytes, Any] = {}  # what HostGpus let others read


class HostCudaError(RuntimeError):
    """What CUDA says of a call in the wrong context."""


class HostStream:
    """Work is done at once, or, between `begin_capture` and `end_capture`, written down.

    It is an event as well, one that has passed.
    """

    done = True

    def __init__(self, gpu: HostGpu) -> None:
        self._gpu = gpu

    def __enter__(self) -> HostStream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def record(self, event: object = None) -> HostStream:
        """An event that has passed."""
        return self

    def wait_event(self, event: object) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing is under way."""

    def begin_capture(self) -> None:
        self._gpu.captured = []

    def end_capture(self) -> SimpleNamespace:
        work, self._gpu.captured = self._gpu.captured or [], None

        def launch(stream: HostStream) -> None:
            self._gpu.replays += 1
            for each in work:
                each()

        return SimpleNamespace(launch=launch)


class HostGpu:
    """What steppers ask of a `GpuDevice`.

    Attributes:
        launches: names of the kernels that ran, in order.
        replays: how many records of launches ran.
        free: bytes of memory that are left.
    """

    architecture, shared_bytes, number, multiprocessors = "sm_90", 227 << 10, 0, 1
    emulating = threading.Lock()  # fibers and memory of an emulated kernel are those of the process

    def __init__(self) -> None:
        pool = SimpleNamespace(free_all_blocks=lambda: None)
        self.cupy = SimpleNamespace(
            **{
                name: getattr(np, name)
                for name in (
                    *("zeros", "zeros_like", "empty", "asarray", "ascontiguousarray", "isfinite"),
                    *("float32", "linalg", "uint32", "roll", "vdot"),
                )
            },
            asnumpy=np.array,
            get_default_memory_pool=lambda: pool,
            cuda=SimpleNamespace(
                get_elapsed_time=lambda begin, end: 1.0, Event=lambda *, block: None
            ),
        )
        self.stream, self.side_stream = HostStream(self), HostStream(self)
        self.quick_stream = HostStream(self)
        self.captured: list[Work] | None = None
        self.launches: list[str] = []
        self.replays, self.free = 0, 1 << 40

    def aside(self) -> HostGpu:
        """Any thread may copy."""
        return self

    def has_room(self, n_bytes: int) -> bool:
        """As far as a test says."""
        return n_bytes <= self.free

    @contextlib.contextmanager
    def use(self) -> Iterator[Any]:
        with inside(self.number):
            yield self.cupy

    def function(
        self, source: str, entry: str, defines: Mapping[str, str | int], shared_bytes: int = 0
    ) -> Any:
        require_inside(self.number, f"{entry} of {source}")
        emulated, loaded = emulate(source, defines), current_gpu()

        def launch(
            grid: Any,
            block: Any,
            arguments: tuple[Any, ...],
            shared_mem: int = 0,
            enable_cooperative_groups: bool = False,
        ) -> None:
            _refuse_context(entry, loaded)
            held = [np.array(a) if by_value(a) else a for a in arguments]
            memory = [a for a in held if by_value(a) and "plane" in (a.dtype.names or ())]
            arrays = [a for a in held if isinstance(a, np.ndarray) and a.dtype.kind in "fc"]
            others = [a for a in held if isinstance(a, np.ndarray) and a.dtype.kind == "u"]
            # Arrays that lie as the state does begin before their first owned point.
            others += [a if a.base is None else a.base for a in arrays[2:]]
            pitches = [
                int(a["field"][0]) for a in held if by_value(a) and "field" in (a.dtype.names or ())
            ]
            others += [arrays[0][start_of(memory[0]) + pitch :] for pitch in pitches if arrays]

            def work() -> None:
                self.launches.append(entry)
                copied = (
                    (arrays[0], arrays[min(1, len(arrays) - 1)], memory[0])
                    if arrays and memory
                    else None
                )
                with self.emulating:
                    emulated.launch(
                        entry,
                        grid,
                        block,
                        [handed(a) for a in held],
                        shared_mem,
                        copied=copied,
                        others=others,
                        together=enable_cooperative_groups,
                    )

            if self.captured is None:
                work()
            else:
                self.captured.append(work)

        return launch

    def slots(self, function: Any, threads: int, shared_bytes: int) -> int:
        """A small GPU: two blocks of anything."""
        return 2

    def address(self, array: Any) -> int:
        """Of the host."""
        return int(array.ctypes.data)

    def bring(self, values: Any) -> tuple[Any, Any]:
        """All memory is the host's."""
        return values, values

    def bring_beside(self, values: Any) -> tuple[Any, Any]:
        """The same."""
        return values, values

    def bring_lasting(self, values: Any) -> tuple[Any, Any]:
        """A copy, since that memory is used again."""
        return np.array(values), values

    def receive_beside(self, array: Any, ready: Any) -> tuple[Any, Any]:
        """A copy, which is there."""
        return np.array(array), self.stream

    def copy_beside(self, here: Any, array: Any, ready: Any) -> Any:
        """A copy, which is done."""
        here[...] = array
        return self.stream

    def talk(self, work: Callable[[int], None], after: Any) -> HostStream:
        """At once."""
        work(0)
        return self.stream

    def staged(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Memory like any other."""
        return np.full(shape, np.nan, dtype)

    def send(self, staged: Any) -> Any:
        """A copy, since that memory is used again."""
        return np.array(staged)

    def receive(self, array: Any, staged: Any) -> None:
        """A copy, of contiguous memory."""
        assert array.flags.c_contiguous
        staged[...] = array

    def fetch(self, array: Any) -> Any:
        """A copy."""
        return np.array(array)

    def copy_from(self, other: HostGpu, array: Any) -> Any:
        """A copy."""
        return np.array(array)

    def copy_into(self, here: Any, other: HostGpu, array: Any) -> None:
        """A copy, of contiguous memory."""
        assert here.flags.c_contiguous
        assert array.flags.c_contiguous
        here[...] = array

    def share(self, n_bytes: int) -> tuple[Any, bytes]:
        """Memory that all threads can read is what other processes see."""
        memory = np.zeros(n_bytes, np.uint8)
        handle = len(SHARED).to_bytes(64, "little")
        SHARED[handle] = memory
        return memory, handle

    def open_shared(self, handle: bytes, n_bytes: int) -> Any:
        """The same memory."""
        assert SHARED[handle].size == n_bytes
        return SHARED[handle]

    def release(self) -> None:
        """Nothing is held."""


def _refuse_context(entry: str, loaded: int | None) -> None:
    """Compiled code runs on the GPU that was used when it was loaded, on no other one."""
    here = current_gpu()
    if here is None:
        msg = f"CUDA_ERROR_INVALID_CONTEXT: {entry} is launched outside of any GPU's use()"
        raise HostCudaError(msg)
    if here != loaded:
        msg = f"CUDA_ERROR_INVALID_HANDLE: {entry} of GPU {loaded} is launched on GPU {here}"
        raise HostCudaError(msg)


def start_of(memory: Any) -> int:
    """The first element that is allocated, counted from the first owned point; see `struct Memory`."""
    z, y, x = memory["low"][0]
    return int(memory["plane"][0]) * int(z) + int(memory["row"][0]) * int(y) + int(x)


def by_value(argument: Any) -> bool:
    """Whether it is a struct, not memory of the GPU."""
    return isinstance(argument, np.ndarray) and argument.dtype.kind == "V"


def handed(argument: Any) -> Any:
    """An argument as the emulation wants it."""
    if not isinstance(argument, np.ndarray):
        return ctypes.c_int(int(argument))
    return argument if by_value(argument) else at(argument)
