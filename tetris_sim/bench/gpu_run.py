"""What every benchmark of a GPU begins and ends with: the device, its limits before and after, who
measured when.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from tetris_sim.bench.gpu_limits import measure_gpu_limits
from tetris_sim.bench.timing import provenance
from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.scheduler.machine.gpus import Gpu
from tetris_sim.scheduler.machine.machine import find_machine


@contextmanager
def measured_gpu(*, rounds: int, seconds: float) -> Iterator[tuple[dict[str, Any], GpuDevice, Gpu]]:
    """A result to be filled, the device to do it with and what is known of it; limits are measured
    before and after.

    Args:
        rounds: timings of each limit.
        seconds: length of one timing.

    Raises:
        UnsupportedError: there is no GPU.
    """
    machine = find_machine()
    if not machine.gpus:
        msg = f"there is no GPU to measure: {machine.gpus_reason}"
        raise UnsupportedError(msg)
    gpu = machine.gpus[0]
    device = GpuDevice(gpu.number)
    try:
        limits = {"before": measure_gpu_limits(device, rounds=rounds, seconds=seconds)}
        device.release()
        about = {**provenance(), "gpu": asdict(gpu), "rounds": rounds, "seconds": seconds}
        yield {**about, "gpu_limits": limits}, device, gpu
        limits["after"] = measure_gpu_limits(device, rounds=rounds, seconds=seconds)
    finally:
        device.close()
