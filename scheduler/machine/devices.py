"""Devices: the GPUs of a machine, and the devices that a configuration selects. No other module
decides this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import ConfigError, UnsupportedError

if TYPE_CHECKING:
    from tetris_sim.scheduler.machine.machine import Machine

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
