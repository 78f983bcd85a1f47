"""One GPU: its streams, memory and copies; and how CUDA sources are compiled and loaded onto it.

NVRTC compiles the sources, and the machine code is cached on disk under a digest of the source, all
headers, the macros, the architecture and the compiler's version. Compiling needs no GPU: the tests
compile every variant for every architecture.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import logging
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import UnsupportedError
from tetris_sim.support.files import atomic_bytes, cache_directory

_ROOMS = Path(__file__).parents[1]
# Without contraction to fused multiply-adds, so that sources alone decide how results are rounded.
_OPTIONS = ("-std=c++17", "--ptxas-options=-v", "-default-device", "-fmad=false")
_HAS_CACHE = (12, 9)  # NVRTC with a cache of its own, which drops the log of register use
_USED = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?Used (?P<registers>\d+) registers", re.DOTALL
)
_ERROR = re.compile(
    r"\b(catastrophic |fatal )?error\b( *#\S+)?:|^ptxas (error|fatal)", re.IGNORECASE
)
_SPILLED = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass(frozen=True)
class Compiled:
    """Machine code of one source file.

    Attributes:
        cubin: the code.
        log: output of the compiler.
    """

    cubin: bytes
    log: str

    @property
    def registers(self) -> dict[str, int]:
        """Registers per thread of each entry point."""
        return {used["name"]: int(used["registers"]) for used in _USED.finditer(self.log)}

    @property
    def spilled(self) -> int:
        """Bytes of registers that all functions together spill to local memory."""
        return sum(int(stores) + int(loads) for stores, loads in _SPILLED.findall(self.log))


def compile_source(name: str, defines: Mapping[str, str | int], architecture: str) -> Compiled:
    """The machine code of one source file, from the cache if it was compiled before.

    Args:
        name: name of a file in any package of gpu_kernels, or an absolute path.
        defines: its macros, without -D.
        architecture: for example "sm_90".

    Raises:
        UnsupportedError: there is no compiler, or compilation fails.
    """
    options = [
        *_OPTIONS,
        f"-arch={architecture}",
        *(f"-D{key}={value}" for key, value in sorted(defines.items())),
    ]
    digest = hashlib.sha256(
        "\n".join([name, _digest(name), compiler_version(), *options]).encode()
    ).hexdigest()[:24]

    code = cache_directory("cuda") / f"{Path(name).stem}_{digest}.cubin"
    log = code.with_suffix(".log")
    try:
        return Compiled(code.read_bytes(), log.read_text(encoding="utf-8"))
    except OSError:
        compiled = _compile(name, options)

    # The code last: its presence means that the log is complete, whichever process wrote it.
    atomic_bytes(log, compiled.log.encode())
    atomic_bytes(code, compiled.cubin)
    return compiled


def find_source(name: str) -> Path:
    """The path of a kernel file. File names are unique over all packages of gpu_kernels; an
    absolute path is returned as it is.
    """
    return Path(name) if Path(name).is_absolute() else next(_ROOMS.glob(f"*/{name}"))


def headers() -> list[Path]:
    """The headers of all packages, sorted by name; any source may include any of them."""
    return sorted(_ROOMS.glob("*/*.cuh"), key=lambda path: path.name)


@functools.cache
def _digest(name: str) -> str:
    # A digest of a source and all headers, since any of them may be included.
    digest = hashlib.sha256()
    for path in (find_source(name), *headers()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def compiler_version() -> str:
    """Version of NVRTC, for example "13.0".

    Raises:
        UnsupportedError: CuPy or NVRTC is missing.
    """
    return ".".join(map(str, _nvrtc().getVersion()))


def first_error(said: str) -> str:
    r"""Return the first error in what a compiler says, perhaps after pages of warnings; empty if
    there is none.

    >>> first_error("a.cu(1): warning: loop is not reachable\na.cu(2): error: no `;`\n")
    'a.cu(2): error: no `;`'
    """
    return next((line.strip() for line in said.splitlines() if _ERROR.search(line)), "")


def _nvrtc() -> Any:
    try:
        from cupy_backends.cuda.libs import nvrtc
    except ImportError as error:
        msg = (
            "the GPU methods need CuPy: pip install 'tetris-sim[gpu13]' (CUDA 12: gpu12). It "
            f"says: {error}"
        )
        raise UnsupportedError(msg) from error
    return nvrtc


def _compile(name: str, options: list[str]) -> Compiled:
    nvrtc = _nvrtc()
    source = f'#line 1 "{name}"\n{find_source(name).read_text(encoding="utf-8")}'
    program = nvrtc.createProgram(
        source,
        name,
        [path.read_bytes() for path in headers()],
        [path.name.encode() for path in headers()],
    )

    # NVRTC's own cache returns an empty log, which would lose the register counts.
    without_cache = ["-no-cache"] if nvrtc.getVersion() >= _HAS_CACHE else []
    try:
        nvrtc.compileProgram(program, [*options, *without_cache])
        # CuPy's binding takes the last byte for the end of a string and drops it; disassemblers
        # miss it.
        return Compiled(nvrtc.getCUBIN(program) + b"\0", nvrtc.getProgramLog(program))
    except nvrtc.NVRTCError as error:
        said = nvrtc.getProgramLog(program).strip()
        log.debug("%s does not compile with %s:\n%s", name, " ".join(options), said)
        msg = f"{name} does not compile: {first_error(said) or error}"
        raise UnsupportedError(msg) from error
    finally:
        nvrtc.destroyProgram(program)


log = logging.getLogger("tetris_sim")

INSTALL = (
    "install CuPy with: pip install 'tetris-sim[gpu13]' (driver for CUDA 13) or 'tetris-sim[gpu12]'"
)
_MOST_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
# Memory left free for compiled code and recorded graphs, where there is a choice.
_LEFT_FREE = 1 << 29
_USUAL_SHARED_BYTES = 48 << 10  # CUDA's default limit; a kernel that needs more must opt in


# CUDA loads compiled code, and makes events, for the GPU that is current in the thread; outside of
# `GpuDevice.use` that is the first one. With one GPU the mistake goes unnoticed, with two the
# second fails (CUDA_ERROR_INVALID_HANDLE). This record notices it with any number of GPUs.


class ContextError(RuntimeError):
    """A programming error: code of one GPU was loaded or launched outside its `use()`."""


class _Inside(threading.local):
    """Numbers of the GPUs that a thread uses, the innermost last."""

    def __init__(self) -> None:
        self.numbers: list[int] = []


_INSIDE = _Inside()


@contextlib.contextmanager
def inside(number: int) -> Iterator[None]:
    """Record that this thread works on a GPU."""
    _INSIDE.numbers.append(number)
    try:
        yield
    finally:
        _INSIDE.numbers.pop()


def current_gpu() -> int | None:
    """The GPU that this thread works on; None outside of any `use()`."""
    return _INSIDE.numbers[-1] if _INSIDE.numbers else None


def require_inside(number: int, what: str) -> None:
    """Refuse work for a GPU that this thread does not use at the moment.

    Raises:
        ContextError: this thread is outside the `use()` of GPU `number`.
    """
    here = current_gpu()
    if here != number:
        where = "outside of any GPU's use()" if here is None else f"inside use() of GPU {here}"
        msg = (
            f"{what} was asked of GPU {number} {where}: it would belong to another GPU; this is "
            "an error of the program: the call must move into `with device.use()` of that GPU"
        )
        raise ContextError(msg)


def import_cupy() -> Any:
    """CuPy, imported on demand: the import takes half a second, and CuPy is optional.

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
    """A GPU that one thread uses at a time."""

    def __init__(self, number: int = 0) -> None:
        """Create three streams to compute on, and one each for uploads, downloads and the exchange
        between processes.

        Args:
            number: index of the GPU among those that this process sees.

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
                # High priority for few blocks that overtake the waiting ones of the main stream:
                # boundary strips in 1D. Not for others: the blocks of a fused kernel would then
                # begin one by one and not end together.
                self.quick_stream = self.cupy.cuda.Stream(non_blocking=True, priority=-1)
                self._arriving = self.cupy.cuda.Stream(non_blocking=True)
                self._leaving = self.cupy.cuda.Stream(non_blocking=True)
                # High priority: few threads, which other processes wait for.
                self._talking = self.cupy.cuda.Stream(non_blocking=True, priority=-1)
        except self.cupy.cuda.runtime.CUDARuntimeError as error:
            msg = f"GPU {number} cannot be used: {error}"
            raise UnsupportedError(msg) from error

        self.multiprocessors = int(self._device.attributes["MultiProcessorCount"])
        self.shared_bytes = int(self._device.attributes["MaxSharedMemoryPerBlockOptin"])
        # Peers with direct access, opened handles, page-locked arrays, and modules by source and
        # macros.
        self._linked: set[int] = set()
        self._opened: dict[bytes, int] = {}
        self._locked: dict[int, npt.NDArray[Any] | None] = {}
        self._modules: dict[tuple[str, tuple[tuple[str, str | int], ...]], Any] = {}

    @contextlib.contextmanager
    def use(self) -> Iterator[Any]:
        """Make this GPU and its stream current for CuPy within the context; yields CuPy."""
        with self._device, self.stream, inside(self.number):
            yield self.cupy

    def aside(self) -> GpuDevice:
        """This GPU for another thread, with its own compute stream."""
        other = copy.copy(self)
        with self._device:
            other.stream = self.cupy.cuda.Stream(non_blocking=True)
        return other

    def has_room(self, n_bytes: int) -> bool:
        """Whether `n_bytes` of memory can be allocated with some to spare."""
        with self._device:
            free = self.cupy.cuda.runtime.memGetInfo()[0]
            # Blocks that CuPy's pool holds but does not use count as free.
            free += self.cupy.get_default_memory_pool().free_bytes()
        return n_bytes <= int(free) - _LEFT_FREE

    def function(
        self, source: str, entry: str, defines: Mapping[str, str | int], shared_bytes: int = 0
    ) -> Any:
        """A compiled entry point, ready to be launched as `function(grid, block, arguments,
        shared_mem=bytes)`; asked for and launched inside `use()`.

        Raises:
            ContextError: this thread is not inside `use()` of this GPU.
            UnsupportedError: it does not compile, or needs more shared memory than the GPU has.
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

        # A module is loaded once per set of macros; several entry points may share it.
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
        """The number of blocks of a kernel that are resident on the GPU at a time."""
        driver = self.cupy.cuda.driver
        resident = driver.occupancyMaxActiveBlocksPerMultiprocessor(
            function.ptr, threads, shared_bytes
        )
        return self.multiprocessors * max(1, int(resident))

    def address(self, array: Any) -> int:
        """The address of an array on this GPU, for structs that hold pointers."""
        return int(array.data.ptr)

    def bring(self, values: npt.NDArray[Any]) -> tuple[Any, Any]:
        """Start to copy a contiguous host array on the main stream: (the array on the GPU, what
        must be kept until the copy is done).
        """
        with self.use():
            staged = self.staged(values.shape, values.dtype)
            staged[...] = values
            return self.send(staged), staged

    def bring_beside(self, values: npt.NDArray[Any]) -> tuple[Any, Any]:
        """Start to copy a contiguous host array on the upload stream, while the main stream goes on
        with earlier work: (the array on the GPU, usable on the main stream; what must be kept until
        that stream has used it).
        """
        with self._device, self._arriving:
            staged = self.staged(values.shape, values.dtype)
            staged[...] = values
            here = self.cupy.empty(staged.shape, staged.dtype)
            here.set(staged, stream=self._arriving)
            self.stream.wait_event(self._arriving.record())
        return here, (here, staged)

    def bring_lasting(self, values: npt.NDArray[Any]) -> tuple[Any, Any]:
        """Start to copy a contiguous host array that stays allocated, directly from its pages; it
        must not change until the main stream has used the copy. Returns what `bring_beside`
        returns.
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
        """Page-lock a host array until the device is released; returns whether that worked."""
        place = values.ctypes.data
        if place not in self._locked:
            # Recorded before the attempt, so that a failure is not retried for every copy.
            self._locked[place] = None
            # Some systems do not allow page-locking.
            with contextlib.suppress(self.cupy.cuda.runtime.CUDARuntimeError):
                with self._device:
                    self.cupy.cuda.runtime.hostRegister(place, values.nbytes, 0)
                self._locked[place] = values  # keeps the memory from being freed
        return self._locked[place] is not None

    def _unlock(self) -> None:
        for place, values in self._locked.items():
            if values is not None:
                self.cupy.cuda.runtime.hostUnregister(place)
        self._locked.clear()

    def receive_beside(self, array: Any, ready: Any) -> tuple[npt.NDArray[Any], Any]:
        """Start to copy a contiguous array to the host once the event `ready` has occurred, while
        the main stream goes on: (pinned memory, the event of its completion).
        """
        with self._device:
            self._leaving.wait_event(ready)
            staged = self.staged(array.shape, array.dtype)
            array.get(stream=self._leaving, out=staged, blocking=False)
            return staged, self._leaving.record()

    def copy_beside(self, here: Any, array: Any, ready: Any) -> Any:
        """Start to copy an array of this GPU into another one once the event `ready` has occurred,
        while the main stream goes on. Returns the event of its completion.
        """
        with self._device, self._leaving:
            self._leaving.wait_event(ready)
            here[...] = array
            return self._leaving.record()

    def talk(self, work: Callable[[int], None], after: Iterable[Any]) -> Any:
        """Enqueue an exchange with other processes after the events `after`, while the main stream
        goes on. `work` receives the address of a stream. Returns the event of its completion.
        """
        with self._device, self._talking:
            for ready in after:
                self._talking.wait_event(ready)
            work(self._talking.ptr)
            return self._talking.record()

    def send(self, staged: npt.NDArray[Any]) -> Any:
        """Start to copy contiguous pinned memory, which must not change until the copy is done."""
        with self._device:
            here = self.cupy.empty(staged.shape, staged.dtype)
            here.set(staged, stream=self.stream)
        return here

    def receive(self, array: Any, staged: npt.NDArray[Any]) -> None:
        """Start to copy a contiguous array of this GPU into pinned memory."""
        array.get(stream=self.stream, out=staged, blocking=False)

    def fetch(self, array: Any) -> npt.NDArray[Any]:
        """Copy a contiguous array of this GPU to host memory and wait for it."""
        with self.use():
            staged = self.staged(array.shape, array.dtype)
            array.get(stream=self.stream, out=staged)
            self.stream.synchronize()
        return staged

    def copy_from(self, other: GpuDevice, array: Any) -> Any:
        """Start to copy a contiguous array of another GPU, over a direct link between the two if
        there is one.
        """
        with self.use() as cupy:
            here = cupy.empty(array.shape, array.dtype)
        self.copy_into(here, other, array)
        return here

    def copy_into(self, here: Any, other: GpuDevice, array: Any) -> None:
        """Start to copy a contiguous array of another GPU, or of this one, into a contiguous array
        of this GPU with a single call.
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
        """Allocate memory that other processes on this computer can read: (the bytes, the handle
        that opens them).
        """
        with self.use() as cupy:
            # Not from the pool, since a handle stands for a whole allocation.
            memory = cupy.cuda.memory.Memory(n_bytes)
            here = cupy.ndarray((n_bytes,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))
            return here, cupy.cuda.runtime.ipcGetMemHandle(memory.ptr)

    def open_shared(self, handle: bytes, n_bytes: int) -> Any:
        """Bytes that another process shares; they stay open until this device is closed."""
        with self.use() as cupy:
            # One mapping per handle, which `close` ends.
            if handle not in self._opened:
                self._opened[handle] = cupy.cuda.runtime.ipcOpenMemHandle(handle)
            # The address is valid on this GPU although the memory may be on another one.
            memory = cupy.cuda.UnownedMemory(self._opened[handle], n_bytes, self, self.number)
            return cupy.ndarray((n_bytes,), np.uint8, cupy.cuda.MemoryPointer(memory, 0))

    def staged(self, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """Pinned host memory, to and from which copies are fastest and asynchronous."""
        count = math.prod(shape)
        with self._device:
            memory = self.cupy.cuda.alloc_pinned_memory(max(1, count * np.dtype(dtype).itemsize))
        return np.frombuffer(memory, dtype, count).reshape(shape)

    def _link_to(self, number: int) -> None:
        """Enable direct access to the memory of another GPU; without a link, copies go through the
        host.
        """
        runtime = self.cupy.cuda.runtime
        if number not in self._linked:
            self._linked.add(number)
            if runtime.deviceCanAccessPeer(self.number, number):
                # Another stepper of this process may have enabled it already.
                with contextlib.suppress(runtime.CUDARuntimeError):
                    runtime.deviceEnablePeerAccess(number)

    def release(self) -> None:
        """Synchronize, and return unused memory so that other programs can have it.

        Never fails: after an error of the GPU every call fails, and the error itself was reported.
        """
        try:
            with self._device:
                self.stream.synchronize()
                self._unlock()
                self.cupy.get_default_memory_pool().free_all_blocks()
        except self.cupy.cuda.runtime.CUDARuntimeError:
            log.debug("GPU %d failed before it was released", self.number, exc_info=True)

    def close(self) -> None:
        """Release the device with its compiled code and shared memory."""
        with contextlib.suppress(self.cupy.cuda.runtime.CUDARuntimeError), self._device:
            self._modules.clear()
            for pointer in self._opened.values():
                with contextlib.suppress(self.cupy.cuda.runtime.CUDARuntimeError):
                    self.cupy.cuda.runtime.ipcCloseMemHandle(pointer)
        self._opened.clear()
        self.release()
