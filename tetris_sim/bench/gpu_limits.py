"""What this GPU can do at most, measured: bytes of memory and multiply-adds per second."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tetris_sim.bench.timing import Work, interleave
from tetris_sim.gpu_kernels.common.device import GpuDevice

_COPY_BYTES = 2 << 30  # of each of two arrays: many times the last-level cache
_TURNS, _CHAINS, _THREADS, _BLOCKS_EACH = 2000, 16, 256, 8
_TENSOR_CHAINS, _TENSOR_PRODUCTS = 4, 16 * 8 * 8  # multiply-adds of one m16n8k8
_REAL = {"float64": "double", "float32": "float"}


def measure_gpu_limits(device: GpuDevice, *, rounds: int, seconds: float) -> dict[str, Any]:
    """`copy` [bytes/s, read plus written], `fma` per dtype and `tensor` [multiply-adds/s], as
    medians with spread.

    Args:
        device: the GPU.
        rounds: timings of each, interleaved.
        seconds: length of one timing.
    """
    works = {"copy": _copy_work(device)}
    for dtype in _REAL:
        works[f"fma {dtype}"] = _fma_work(device, dtype)
    if int(device.architecture.removeprefix("sm_")) >= 90:
        works["tensor"] = _tensor_work(device)
    found = {
        name: asdict(timing)
        for name, timing in interleave(works, rounds=rounds, seconds=seconds).items()
    }
    return {
        "copy": found["copy"],
        "fma": {dtype: found[f"fma {dtype}"] for dtype in _REAL},
        "tensor": found.get("tensor"),
    }


def _copy_work(device: GpuDevice) -> Work:
    with device.use() as cupy:
        source = cupy.random.default_rng(0).random(_COPY_BYTES // 8)
        target = cupy.zeros_like(source)

    def run(repetitions: int) -> None:
        with device.use():
            for _ in range(repetitions):
                target.data.copy_from_device_async(source.data, source.nbytes, device.stream)
        device.stream.synchronize()

    return Work(run, units=2 * source.nbytes)


def _fma_work(device: GpuDevice, dtype: str) -> Work:
    function = device.function(
        "limits.cu", "multiply_add", {"TS_REAL": _REAL[dtype], "TS_TURNS": _TURNS}
    )
    blocks = _BLOCKS_EACH * device.multiprocessors
    with device.use() as cupy:
        out = cupy.zeros(blocks * _THREADS, dtype)
        arguments = (out, out.dtype.type(0.9), out.dtype.type(0.05))
    return _launch_work(
        device, function, blocks, arguments, units=_CHAINS * _TURNS * blocks * _THREADS
    )


def _tensor_work(device: GpuDevice) -> Work:
    function = device.function(
        "limits.cu", "tensor_multiply_add", {"TS_REAL": "double", "TS_TURNS": _TURNS}
    )
    blocks = _BLOCKS_EACH * device.multiprocessors
    with device.use() as cupy:
        out = cupy.zeros(blocks * _THREADS)
    units = _TENSOR_CHAINS * _TURNS * _TENSOR_PRODUCTS * blocks * _THREADS // 32
    return _launch_work(device, function, blocks, (out,), units=units)


def _launch_work(
    device: GpuDevice, function: Any, blocks: int, arguments: tuple[Any, ...], units: float
) -> Work:
    def run(repetitions: int) -> None:
        with device.use():
            for _ in range(repetitions):
                function((blocks, 1, 1), (_THREADS, 1, 1), arguments)
        device.stream.synchronize()

    return Work(run, units=units)
