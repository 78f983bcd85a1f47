"""Gpu: the GPUs that this process may use, as found."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from dataclasses import dataclass

from tetris_sim.errors import UnsupportedError


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
        multiprocessors: how many it has; 0 if nobody looked.
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
