"""The machine: the cores and the memory that this process may use, measured rather than
advertised; its GPUs; and the devices that a configuration selects, which no other module decides.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import platform
import resource
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.support import usable_cores

# Slurm's limit per task, the only limit of threads that applies to one rank instead of to all ranks
# on a computer.
PER_TASK = "SLURM_CPUS_PER_TASK"


# Gpu: the GPUs that this process may use, as found.


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes:
        number: among those that this process sees.
        name: of the product.
        architecture: for example "sm_90".
        memory: bytes that are free.
        cache: bytes of its last-level cache.
        driver: highest CUDA version of the driver, for example "13.0".
        multiprocessors: how many it has; 0 if not looked up.
        clock: the highest of its cores [Hz]; 0 if the driver does not say.
        bandwidth: of its memory, from clock and width of the bus [bytes/s]; None if the driver does
            not say.
        float64_cost: instructions of FP32 that it makes in the time of one of FP64; None if the
            driver does not say.
    """

    number: int
    name: str
    architecture: str
    memory: int
    cache: int
    driver: str
    multiprocessors: int = 0
    clock: float = 0.0
    bandwidth: float | None = None
    float64_cost: float | None = None


@functools.cache
def find_gpus() -> tuple[tuple[Gpu, ...], str]:
    """(the GPUs, why there are none or where they come from). Looks once; costs a second where
    there are some.
    """
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return (), "there is no NVIDIA driver (libcuda.so.1)"
    from tetris_sim.gpu_kernels.common.device import import_cupy

    try:
        cupy = import_cupy()
    except UnsupportedError as error:
        return (), str(error)

    runtime = cupy.cuda.runtime
    try:
        gpus = tuple(_describe(cupy, number) for number in range(runtime.getDeviceCount()))
    except runtime.CUDARuntimeError as error:
        return (), f"the NVIDIA driver finds no GPU that it can use: {error}"
    return gpus, "the GPUs that the driver lists"


def _describe(cupy: object, number: int) -> Gpu:
    runtime = cupy.cuda.runtime  # type: ignore[attr-defined]
    properties = runtime.getDeviceProperties(number)
    version = runtime.driverGetVersion()
    with cupy.cuda.Device(number) as device:  # type: ignore[attr-defined]
        free, _ = device.mem_info
        attributes = device.attributes

    return Gpu(
        number=number,
        name=properties["name"].decode(),
        architecture=f"sm_{properties['major']}{properties['minor']}",
        memory=int(free),
        cache=int(properties["l2CacheSize"]),
        driver=f"{version // 1000}.{version % 1000 // 10}",
        multiprocessors=int(attributes["MultiProcessorCount"]),
        clock=1e3 * attributes.get("ClockRate", 0),
        bandwidth=_bandwidth(attributes),
        float64_cost=attributes.get("SingleToDoublePrecisionPerfRatio"),
    )


def _bandwidth(attributes: Mapping[str, int]) -> float | None:
    """Twice per cycle of the memory's clock (given in kHz) the whole bus (in bits) moves; virtual
    GPUs may say 0.
    """
    return (
        2e3 * attributes.get("MemoryClockRate", 0) * attributes.get("GlobalMemoryBusWidth", 0) / 8
        or None
    )


@dataclass(frozen=True)
class Machine:
    """Hardware that this process may compute on.

    Attributes:
        host: host name.
        cpu: model name of the processor.
        threads: number of CPU threads that this process may use.
        threads_reason: origin of that number, for the user.
        memory: memory that can still be allocated without swapping or being killed [bytes].
        memory_reason: limit that determines it, for the user.
        cache: size of all last-level caches together [bytes]; a desktop's value if the machine does
            not report it.
        gpus: GPUs that this process may use.
        gpus_reason: origin of that list, or the reason why it is empty.
        cores: core numbers in the affinity mask of this process.
    """

    host: str
    cpu: str
    threads: int
    threads_reason: str
    memory: int
    memory_reason: str
    cache: int = 32 << 20
    gpus: tuple[Gpu, ...] = ()
    gpus_reason: str = "none was looked for"
    cores: tuple[int, ...] = ()


def find_machine(environ: Mapping[str, str] | None = None) -> Machine:
    """Inspect the machine that this process runs on.

    Args:
        environ: environment to read Slurm's variables from; that of the process if not given.
    """
    gpus, gpus_reason = find_gpus()
    threads, threads_reason = _threads(os.environ if environ is None else environ)
    memory, memory_reason = available_memory()

    return Machine(
        host=platform.node(),
        cpu=_cpu_model(),
        threads=threads,
        threads_reason=threads_reason,
        memory=memory,
        memory_reason=memory_reason,
        cache=last_level_cache() or Machine.cache,
        gpus=gpus,
        gpus_reason=gpus_reason,
        cores=usable_cores(),
    )


def _threads(environ: Mapping[str, str]) -> tuple[int, str]:
    """(number of threads, its origin): the least of the affinity mask, Slurm's allocation for the
    task and the CPU quota of the container.
    """
    limits = [(len(usable_cores()), "cores in the affinity mask")]
    slurm = environ.get("SLURM_CPUS_PER_TASK", "")
    if slurm.isdigit() and int(slurm) > 0:
        limits.append((int(slurm), PER_TASK))
    # cgroup v2: "quota period" in microseconds, or "max period" without a limit. A part of a core
    # counts as a core.
    quota = _read_words("/sys/fs/cgroup/cpu.max")
    if len(quota) == 2 and quota[0].isdigit():
        limits.append(
            (max(1, math.ceil(int(quota[0]) / int(quota[1]))), "CPU quota of the container")
        )
    return min(limits)


def available_memory() -> tuple[int, str]:
    """(bytes that can still be allocated, the limit that determines them): free memory, control
    groups or ulimit -v.
    """
    limits = []
    meminfo = dict(line.split(":", 1) for line in _read_lines("/proc/meminfo"))
    # /proc/meminfo counts in units of 1024 bytes. Other systems than Linux tell all memory only.
    if "MemAvailable" in meminfo:
        free = int(meminfo["MemAvailable"].split()[0]) * 1024
        limits.append((free, "free memory of the machine"))
    else:
        whole = os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()
        limits.append((whole, "memory of the machine"))

    # File cache is given up on demand, so it does not count as used.
    for limit, used, reclaimable in _memory_groups():
        limits.append((max(0, limit - used + reclaimable), "memory limit of the control group"))
    # The address space limit counts mapped memory, whether it is touched or not: the first number
    # in statm, in pages.
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        pages, *_ = _read_words("/proc/self/statm") or ["0"]
        mapped = int(pages) * resource.getpagesize()
        limits.append((max(0, soft - mapped), "address space limit (ulimit -v)"))
    return min(limits)


def _memory_groups() -> list[tuple[int, int, int]]:
    """(limit, used, reclaimable file cache) of each control group above this process that has a
    limit [bytes].
    """
    limited = []
    for line in _read_lines("/proc/self/cgroup"):
        # Lines are "number:controllers:path"; cgroup v2 has no controllers there.
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, limit_name, used_name, cache = (
                "/sys/fs/cgroup",
                "memory.max",
                "memory.current",
                "inactive_file",
            )
        elif "memory" in controllers.split(","):
            root, limit_name, used_name = (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
            )
            cache = "total_inactive_file"
        else:
            continue

        # In a container the path may be that of the host, which does not exist there; the root
        # group still has the limit.
        groups = {Path(root), *(Path(root) / parent for parent in _ancestors(path))}
        for group in groups:
            limit, used = _read_words(group / limit_name), _read_words(group / used_name)
            if limit and used and limit[0].isdigit():
                statistics = dict(
                    zip(*[iter(_read_words(group / "memory.stat"))] * 2, strict=False)
                )
                limited.append((int(limit[0]), int(used[0]), int(statistics.get(cache, 0))))
    return limited


def _ancestors(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", "..")]
    # The empty path, the root itself, is added by the caller.
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


def _read_words(path: Path | str) -> list[str]:
    try:
        return Path(path).read_text().split()
    except OSError:
        return []


def _read_lines(path: str) -> list[str]:
    """The lines of a file of the system; none where it has no such file, as macOS."""
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def last_level_cache(cpus: Path = Path("/sys/devices/system/cpu")) -> int:
    """Size of the last-level caches of the cores that this process may use, each cache counted once
    [bytes]; 0 if unknown.
    """
    # Imported here: configurations are checked with named devices only, without Numba.
    from tetris_sim.cpu_kernels.common.caches import find_caches

    # Cores list the caches that they share; level and set of cores identify a cache.
    caches = {
        (cache.level, cache.shared_by): cache.n_bytes
        for core in usable_cores()
        for cache in find_caches(cpus / f"cpu{core}" / "cache")
    }
    last = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == last)


def _cpu_model() -> str:
    for line in _read_lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


Kind = Literal["cpu", "gpu", "simulated"]


@dataclass(frozen=True)
class Device:
    """A device that one worker computes on.

    Attributes:
        kind: CPU threads, a GPU, or an emulated device.
        number: number among the devices of this kind.
    """

    kind: Kind
    number: int = 0

    @property
    def name(self) -> str:
        """Name of the device, for example "cpu:0" or "gpu:1"."""
        return f"{self.kind}:{self.number}"

    @property
    def computes_on(self) -> Literal["cpu", "gpu"]:
        """Kind of the methods that it runs; an emulated device runs on CPU threads."""
        return "gpu" if self.kind == "gpu" else "cpu"


def named_devices(compute: ComputeSection) -> tuple[Device, ...]:
    """The devices that a configuration lists, in the order of their slabs; empty if it gives a
    keyword such as "auto" instead.
    """
    if isinstance(compute.devices, str):
        return ()
    devices: list[Device] = []
    # Several entries "cpu" are several teams of threads, numbered in order; GPUs and emulated
    # devices carry their number in the name, or are number 0.
    for name in compute.devices:
        word, _, number = name.partition(":")
        kind: Kind = "gpu" if word == "gpu" else "simulated" if word == "simulated" else "cpu"
        teams = sum(device.kind == "cpu" for device in devices)
        devices.append(Device(kind, int(number or (teams if kind == "cpu" else 0))))
    return tuple(devices)


def may_use_gpus(compute: ComputeSection) -> bool:
    """Whether a configuration allows GPUs where there are some."""
    if compute.devices == "auto":
        return not compute.method.startswith("cpu.")
    if isinstance(compute.devices, str):
        return compute.devices != "cpu"
    return any(device.kind == "gpu" for device in named_devices(compute))


def choose_devices(
    machine: Machine, compute: ComputeSection
) -> tuple[tuple[Device, ...], tuple[str, ...]]:
    """(the devices that may get a share, in the order of their slabs; a sentence where the choice
    needs one).

    Raises:
        UnsupportedError: a requested GPU does not exist.
        ConfigError: a device is named twice.
    """
    gpus = tuple(Device("gpu", gpu.number) for gpu in machine.gpus)
    if named := named_devices(compute):
        _refuse_names(named, gpus, machine.gpus_reason)
        return named, ()

    # Keywords: "auto" and "cpu+gpu" put the GPUs first and one team of CPU threads last.
    cpu = Device("cpu")
    if not may_use_gpus(compute):
        kept = compute.devices == "auto" and machine.gpus
        why = (f"On the CPU, since compute.method is {compute.method}.",) if kept else ()
        return (cpu,), why
    if not gpus:
        _refuse_without_gpus(compute, machine.gpus_reason)
        return (cpu,), ()
    return (gpus if compute.devices == "gpu" else (*gpus, cpu)), ()


def _refuse_without_gpus(compute: ComputeSection, reason: str) -> None:
    """Raise if the configuration requires a GPU."""
    remedy = "Use compute.devices: cpu, or use a machine with a GPU."
    if compute.devices == "auto" and not compute.method.startswith("gpu."):
        return
    # Name the key that the user has to change, and the change.
    asked = f"devices is {compute.devices}"
    if compute.devices == "cpu+gpu":
        remedy = "Use compute.devices: cpu."
    if compute.devices == "auto":
        asked = f"method is {compute.method}"
        remedy = "Leave the method out, or use a machine with a GPU."
    msg = f"compute.{asked}, but {reason}. {remedy}"
    raise UnsupportedError(msg)


def _refuse_names(named: Sequence[Device], gpus: Sequence[Device], reason: str) -> None:
    """Raise if a named device does not exist or is named twice."""
    for device in named:
        if device.kind == "gpu" and device not in gpus:
            there = f"there are {[gpu.name for gpu in gpus]}" if gpus else reason
            msg = f"compute.devices names {device.name}, but {there}"
            raise UnsupportedError(msg)
        if named.count(device) > 1:
            msg = f"compute.devices names {device.name} twice; each device is one worker"
            raise ConfigError(msg)
