"""What this GPU can do at most, measured: bytes of memory and multiply-adds per second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tetris_sim.bench.gpu import copy_work
from tetris_sim.bench.result import MachineLimits
from tetris_sim.bench.timing import TimedWork, interleave
from tetris_sim.gpu_kernels.common.device import GpuDevice

SOURCE = str(Path(__file__).with_name("limits.cu"))
_TURNS, _CHAINS, _THREADS, _BLOCKS_EACH = 2000, 16, 256, 8
_TENSOR_CHAINS, _TENSOR_PRODUCTS = 4, 16 * 8 * 8  # multiply-adds of one m16n8k8
_REAL = {"float64": "double", "float32": "float"}


def measure_gpu_limits(device: GpuDevice, *, rounds: int, seconds: float) -> MachineLimits:
    """Copies in memory, multiply-adds per dtype and those of FP64 tensor cores.

    Args:
        device: the GPU.
        rounds: timings of each, interleaved.
        seconds: length of one timing.
    """
    works = {"copy": copy_work(device)}
    for dtype in _REAL:
        works[f"fma {dtype}"] = _fma_work(device, dtype)
    if int(device.architecture.removeprefix("sm_")) >= 90:
        works["tensor"] = _tensor_work(device)
    timings = interleave(works, rounds=rounds, seconds=seconds)
    return MachineLimits(
        copy=timings["copy"],
        fma={dtype: timings[f"fma {dtype}"] for dtype in _REAL},
        tensor=timings.get("tensor"),
    )


def _fma_work(device: GpuDevice, dtype: str) -> TimedWork:
    defines: dict[str, str | int] = {"TS_REAL": _REAL[dtype], "TS_TURNS": _TURNS}
    with device.use():
        function = device.function(SOURCE, "multiply_add", defines)
    blocks = _BLOCKS_EACH * device.multiprocessors
    with device.use() as cupy:
        out = cupy.zeros(blocks * _THREADS, dtype)
        arguments = (out, out.dtype.type(0.9), out.dtype.type(0.05))
    return _launch_work(
        device, function, blocks, arguments, units=_CHAINS * _TURNS * blocks * _THREADS
    )


def _tensor_work(device: GpuDevice) -> TimedWork:
    defines: dict[str, str | int] = {"TS_REAL": "double", "TS_TURNS": _TURNS}
    with device.use():
        function = device.function(SOURCE, "tensor_multiply_add", defines)
    blocks = _BLOCKS_EACH * device.multiprocessors
    with device.use() as cupy:
        out = cupy.zeros(blocks * _THREADS)
    units = _TENSOR_CHAINS * _TURNS * _TENSOR_PRODUCTS * blocks * _THREADS // 32
    return _launch_work(device, function, blocks, (out,), units=units)


def _launch_work(
    device: GpuDevice, function: Any, blocks: int, arguments: tuple[Any, ...], units: float
) -> TimedWork:
    def run(repetitions: int) -> None:
        with device.use():
            for _ in range(repetitions):
                function((blocks, 1, 1), (_THREADS, 1, 1), arguments)
        device.stream.synchronize()

    return TimedWork(run, units=units)
