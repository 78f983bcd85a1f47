"""GpuDevice: one GPU with the streams that a stepper works on, and how compiled code gets onto
it.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.common.build import compile_source
from tetris_sim.gpu_kernels.common.context import ContextError, inside, require_inside

log = logging.getLogger("tetris_sim")

INSTALL = (
    "install CuPy with: pip install 'tetris-sim[gpu13]' (driver for CUDA 13) or 'tetris-sim[gpu12]'"
)
_MOST_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
# Memory that is left free for what is compiled and recorded, where there is a choice.
_LEFT_FREE = 1 << 29
_USUAL_SHARED_BYTES = 48 << 10  # a kernel that wants more must say so


def import_cupy() -> Any:
    """CuPy, which costs half a second and is not everywhere.

    Raises:
        UnsupportedError: it is not installed, or finds no CUDA libraries.
    """
    try:
        import cupy
    except ImportError as error:
        msg = (
            f"the GPU cannot be used without CuPy: {INSTALL}. It says: "
            f"{str(error).strip().splitlines()[0]}"
        )
        raise UnsupportedError(msg) from error
    return cupy


class GpuDevice:
    """A GPU that is used from one thread at a time."""

    def __init__(self, number: int = 0) -> None:
        """Take three streams to compute on, and one each for what comes, what goes, and what passes
        between processes beside that.

        Args:
            number: of the GPU among those that this process sees.

        Raises:
            UnsupportedError: there is no such GPU, or no CuPy.
        """
        self.cupy = import_cupy()
        self.number = number
        try:
            self._device = self.cupy.cuda.Device(number)
            self.architecture = f"sm_{self._device.compute_capability}"
            with self._device:
                self.stream = self.cupy.cuda.Stream(non_blocking=True)
                self.side_stream = self.cupy.cuda.Stream(non_blocking=True)
                # Few blocks, before those of the stream that wait: for frames of a line, not for
                # others, after which the blocks of a fused kernel would begin one by one and not
                # end together.
                self.quick_stream = self.cupy.cuda.Stream(non_blocking=True, priority=-1)
                self._arriving = self.cupy.cuda.Stream(non_blocking=True)
                self._leaving = self.cupy.cuda.Stream(non_blocking=True)
                # Few threads that others wait for: before those of the stream.
                self._talking = self.cupy.cuda.Stream(non_blocking=True, priority=-1)
        except self.cupy.cuda.runtime.CUDARuntimeError as error:
            msg = f"GPU {number} cannot be used: {error}"
            raise UnsupportedError(msg) from error

        self.multiprocessors = int(self._device.attributes["MultiProcessorCount"])
        self.shared_bytes = int(self._device.attributes["MaxSharedMemoryPerBlockOptin"])
        self._linked: set[int] = set()
        self._opened: dict[bytes, int] = {}
        self._locked: dict[int, npt.NDArray[Any] | None] = {}
        self._modules: dict[tuple[str, tuple[tuple[str, str | int], ...]], Any] = {}

    @contextlib.contextmanager
    def use(self) -> Iterator[Any]:
        """Make this the GPU, and its stream the stream, of what CuPy is asked for inside; yields
        CuPy.
        """
        with self._device, self.stream, inside(self.number):
            yield self.cupy

    def aside(self) -> GpuDevice:
        """This GPU for another thread: with a stream of its own."""
        other = copy.copy(self)
        with self._device:
            other.stream = self.cupy.cuda.Stream(non_blocking=True)
        return other

    def has_room(self, n_bytes: int) -> bool:
        """Whether so much memory can be taken and some is left."""
        with self._device:
            free = self.cupy.cuda.runtime.memGetInfo()[0]
            free += self.cupy.get_default_memory_pool().free_bytes()
        return n_bytes <= int(free) - _LEFT_FREE

    def function(
        self, source: str, entry: str, defines: Mapping[str, str | int], shared_bytes: int = 0
    ) -> Any:
        """A compiled entry point, ready to be launched as `function(grid, block, arguments,
        shared_mem=bytes)`; asked for and launched inside `use()`.

        Raises:
            ContextError: this thread is not inside `use()` of this GPU.
            UnsupportedError: it does not compile, or wants more shared memory than the GPU has.
        """
        require_inside(self.number, f"{entry} of {source}")
        now = self.cupy.cuda.runtime.getDevice()
        if now != self.number:
            msg = f"{source} was asked of GPU {self.number}, and something inside made it GPU {now}"
            raise ContextError(msg)
        if shared_bytes > self.shared_bytes:
            msg = (
                f"{source} needs {shared_bytes} bytes of shared memory, and GPU {self.number} has "
                f"{self.shared_bytes}"
            )
            raise UnsupportedError(msg)

        key = source, tuple(sorted(defines.items()))
        if key not in self._modules:
            module = self.cupy.cuda.function.Module()
            module.load(compile_source(source, defines, self.architecture).cubin)
            self._modules[key] = module

        function = self._modules[key].get_function(entry)
        if shared_bytes > _USUAL_SHARED_BYTES:
            self.cupy.cuda.driver.funcSetAttribute(function.ptr, _MOST_SHARED_BYTES, shared_bytes)
        return function

    def slots(self, function: Any, threads: int, shared_bytes: int) -> int:
        """How many blocks of threads of a kernel the GPU holds at a time."""
        driver = self.cupy.cuda.driver
        resident = driver.occupancyMaxActiveBlocksPerMultiprocessor(
            function.ptr, threads, shared_bytes
        )
        return self.multiprocessors * max(1, int(resident))

    def address(self, array: Any) -> int:
        """Where an array of this GPU begins, for structs that hold pointers."""
        return int(array.data.ptr)

    def bring(self, values: npt.NDArray[Any]) -> tuple[Any, Any]:
        """Start to copy a contiguous array of the host: (the array here, what must be kept until
        that is done).
        """
        with self.use():
            staged = self.staged(values.shape, values.dtype)
            staged[...] = values
            return self.send(staged), staged

    def bring_beside(self, values: npt.NDArray[Any]) -> tuple[Any, Any]:
        """The same while the stream goes on with what it was told before: (the array here, usable
        on the stream; what must be kept until the stream has used it).
        """
        with self._device, self._arriving:
            staged = self.staged(values.shape, values.dtype)
            staged[...] = values
            here = self.cupy.empty(staged.shape, staged.dtype)
            here.set(staged, stream=self._arriving)
            self.stream.wait_event(self._arriving.record())
        return here, (here, staged)

    def bring_lasting(self, values: npt.NDArray[Any]) -> tuple[Any, Any]:
        """The same from memory of the host that lasts: it is copied from where it is, and must stay
        as it is until the stream has used the copy.
        """
        if not self._lock(values):
            return self.bring_beside(values)
        runtime = self.cupy.cuda.runtime
        with self._device, self._arriving:
            here = self.cupy.empty(values.shape, values.dtype)
            way = (values.nbytes, runtime.memcpyHostToDevice, self._arriving.ptr)
            runtime.memcpyAsync(here.data.ptr, values.ctypes.data, *way)
            self.stream.wait_event(self._arriving.record())
        return here, (here, values)

    def _lock(self, values: npt.NDArray[Any]) -> bool:
        """Let the GPU read memory of the host, until the device is released; whether it can."""
        place = values.ctypes.data
        if place not in self._locked:
            self._locked[place] = None
            # Some systems let nobody lock memory.
            with contextlib.suppress(self.cupy.cuda.runtime.CUDARuntimeError):
                with self._device:
                    self.cupy.cuda.runtime.hostRegister(place, values.nbytes, 0)
                self._locked[place] = values  # which cannot be given back before
        return self._locked[place] is not None

    def _unlock(self) -> None:
        for place, values in self._locked.items():
            if values is not None:
                self.cupy.cuda.runtime.hostUnregister(place)
        self._locked.clear()

    def receive_beside(self, array: Any, ready: Any) -> tuple[npt.NDArray[Any], Any]:
        """Start to copy a contiguous array that is there when `ready` has happened, while the
        stream goes on: (pinned memory, what happens when it is there).
        """
        with self._device:
            self._leaving.wait_event(ready)
            staged = self.staged(array.shape, array.dtype)
            array.get(stream=self._leaving, out=staged, blocking=False)
            return staged, self._leaving.record()

    def copy_beside(self, here: Any, array: Any, ready: Any) -> Any:
        """Start to copy an array of this GPU that is there when `ready` has happened into another
        one, while the stream goes on: what happens when it is done.
        """
        with self._device, self._leaving:
            self._leaving.wait_event(ready)
            here[...] = array
            return self._leaving.record()

    def talk(self, work: Callable[[int], None], after: Iterable[Any]) -> Any:
        """Start what other processes take part in when some moments have come, while the stream
        goes on: what happens when it is done. `work` takes the address of a stream.
        """
        with self._device, self._talking:
            for ready in after:
                self._talking.wait_event(ready)
            work(self._talking.ptr)
            return self._talking.record()

    def send(self, staged: npt.NDArray[Any]) -> Any:
        """Start to copy contiguous pinned memory, which must stay as it is until that is done."""
        with self._device:
            here = self.cupy.empty(staged.shape, staged.dtype)
            here.set(staged, stream=self.stream)
        return here

    def receive(self, array: Any, staged: npt.NDArray[Any]) -> None:
        """Start to copy a contiguous array of this GPU to pinned memory."""
        array.get(stream=self.stream, out=staged, blocking=False)

    def fetch(self, array: Any) -> npt.NDArray[Any]:
        """A contiguous array of this GPU in host memory."""
        with self.use():
            staged = self.staged(array.shape, array.dtype)
            array.get(stream=self.stream, out=staged)
            self.stream.synchronize()
        return staged

    def copy_from(self, other: GpuDevice, array: Any) -> Any:
        """Start to copy a contiguous array of another GPU, over the link between the two if there
        is one.
        """
        with self.use() as cupy:
            here = cupy.empty(array.shape, array.dtype)
        self.copy_into(here, other, array)
        return here

    def copy_into(self, here: Any, other: GpuDevice, array: Any) -> None:
        """The same into a contiguous array of this GPU, in a single call; the other one may be this
        one.
        """
        runtime, n_bytes = self.cupy.cuda.runtime, array.nbytes
        to, there = here.data.ptr, array.data.ptr
        with self._device:
            if other.number == self.number:
                runtime.memcpyAsync(
                    to, there, n_bytes, runtime.memcpyDeviceToDevice, self.stream.ptr
                )
                return
            self._link_to(other.number)
            runtime.memcpyPeerAsync(to, self.number, there, other.number, n_bytes, self.stream.ptr)

    def share(self, n_bytes: int) -> tuple[Any, bytes]:
        """(bytes here that other processes of this computer can read, what they open them with)."""
        with self.use() as cupy:
            # Not from the pool: a handle is of a whole allocation.
            memory = cupy.cuda.memory.Memory(n_bytes)
            here = cupy.ndarray((n_bytes,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))
            return here, cupy.cuda.runtime.ipcGetMemHandle(memory.ptr)

    def open_shared(self, handle: bytes, n_bytes: int) -> Any:
        """Bytes that another process shares; they stay open until this device is closed."""
        with self.use() as cupy:
            if handle not in self._opened:
                self._opened[handle] = cupy.cuda.runtime.ipcOpenMemHandle(handle)
            # Read as if it were here.
            memory = cupy.cuda.UnownedMemory(self._opened[handle], n_bytes, self, self.number)
            return cupy.ndarray((n_bytes,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))

    def staged(self, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """Pinned memory of the host, to and from which copies are fastest and need not be waited
        for.
        """
        count = math.prod(shape)
        with self._device:
            memory = self.cupy.cuda.alloc_pinned_memory(max(1, count * np.dtype(dtype).itemsize))
        return np.frombuffer(memory, dtype, count).reshape(shape)

    def _link_to(self, number: int) -> None:
        """Let this GPU read the memory of another one; without a link, copies go through the
        host.
        """
        runtime = self.cupy.cuda.runtime
        if number not in self._linked:
            self._linked.add(number)
            if runtime.deviceCanAccessPeer(self.number, number):
                # Another stepper of this process may have asked for it.
                with contextlib.suppress(runtime.CUDARuntimeError):
                    runtime.deviceEnablePeerAccess(number)

    def release(self) -> None:
        """Wait, and give memory that nobody uses back, so that others can have it.

        Never fails: after an error of the GPU everything that is asked of it fails, and the error
        itself has been told.
        """
        try:
            with self._device:
                self.stream.synchronize()
                self._unlock()
                self.cupy.get_default_memory_pool().free_all_blocks()
        except self.cupy.cuda.runtime.CUDARuntimeError:
            log.debug("GPU %d failed before it was released", self.number, exc_info=True)

    def close(self) -> None:
        """Release it, compiled code included."""
        with contextlib.suppress(self.cupy.cuda.runtime.CUDARuntimeError), self._device:
            self._modules.clear()
            for pointer in self._opened.values():
                with contextlib.suppress(self.cupy.cuda.runtime.CUDARuntimeError):
                    self.cupy.cuda.runtime.ipcCloseMemHandle(pointer)
        self._opened.clear()
        self.release()
