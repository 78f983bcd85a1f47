"""Place: what a method is tried and run on. Some CPU threads, or a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tetris_sim import cpu_kernels, gpu_kernels
from tetris_sim.cpu_kernels.solve import method as cpu_solve
from tetris_sim.cpu_kernels.spectral import METHOD as CPU_SPECTRAL
from tetris_sim.gpu_kernels.solve import method as gpu_solve
from tetris_sim.gpu_kernels.spectral import METHOD as GPU_SPECTRAL
from tetris_sim.model.method import DeviceKind, Method
from tetris_sim.solvers.spectral.stepper import SpectralMethod
from tetris_sim.solvers.stepper import SolvingMethod


@dataclass(frozen=True)
class Place:
    """One worker's device.

    Attributes:
        threads: CPU threads; a GPU is driven by one.
        device: its kind.
        number: of the worker among those on CPUs, or of the GPU among those that this process sees.
    """

    threads: int = 1
    device: DeviceKind = "cpu"
    number: int = 0

    @property
    def name(self) -> str:
        """For example "cpu:0" or "gpu:1"."""
        return f"{self.device}:{self.number}"

    @property
    def methods(self) -> tuple[Method, ...]:
        """What can be tried there; the last one compiles quickly and refuses least."""
        return gpu_kernels.METHODS if self.device == "gpu" else cpu_kernels.METHODS

    @property
    def spectral(self) -> SpectralMethod:
        """What jumps there; it is no choice of the tuner."""
        return GPU_SPECTRAL if self.device == "gpu" else CPU_SPECTRAL

    def solving(self, scheme: Literal["steady", "implicit"]) -> SolvingMethod:
        """What solves for states there."""
        if self.device == "gpu":
            return gpu_solve.STEADY if scheme == "steady" else gpu_solve.IMPLICIT
        return cpu_solve.STEADY if scheme == "steady" else cpu_solve.IMPLICIT

    def open(self) -> Any:
        """What `Method.prepare` wants of it: a `ThreadTeam` or a `GpuDevice`, to be closed.

        Raises:
            UnsupportedError: the GPU cannot be used.
        """
        if self.device == "gpu":
            from tetris_sim.gpu_kernels.common.device import GpuDevice

            return GpuDevice(self.number)
        from tetris_sim.cpu_kernels.common.threads import ThreadTeam

        return ThreadTeam(self.threads)

    @contextlib.contextmanager
    def opened(self) -> Iterator[Any]:
        """The same, closed at the end of the block."""
        with contextlib.closing(self.open()) as device:
            yield device


def is_spectral(name: str) -> bool:
    """Whether a method jumps."""
    return name in {CPU_SPECTRAL.name, GPU_SPECTRAL.name}


def is_implicit(name: str) -> bool:
    """Whether a method makes implicit steps."""
    return name in {cpu_solve.IMPLICIT.name, gpu_solve.IMPLICIT.name}


def every_method() -> tuple[Method, ...]:
    """All methods of all devices, whether this machine has them or not."""
    return (*cpu_kernels.METHODS, *gpu_kernels.METHODS)
