"""`doctor`: what was found on this machine, in one block for a bug report."""

from __future__ import annotations

import argparse
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tetris_sim.errors import ExitCode
from tetris_sim.scheduler.machine.machine import Machine, find_machine
from tetris_sim.simulation.report import package_versions
from tetris_sim.support.files import cache_directory, caching, why_not_kept
from tetris_sim.support.wording import gib

_OPTIONAL = ("mpi4py", "mpich", "openmpi", "cupy-cuda13x", "cupy-cuda12x", "xarray", "h5netcdf")
_VARIABLES = (
    "TETRIS_SIM_",
    "SLURM_CPUS",
    "SLURM_JOB_END",
    "OMP_NUM_THREADS",
    "NUMBA_",
    "CUDA_VISIBLE",
    "HDF5_",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No arguments of its own."""


def run(args: argparse.Namespace) -> int:
    """Print the findings."""
    facts = findings()
    if args.json:
        print(json.dumps(facts, indent=2))
        return ExitCode.OK
    for title, entries in facts.items():
        print(f"{title}:")
        for name, value in entries.items():
            print(f"  {name:<14} {value}")
    return ExitCode.OK


def findings() -> dict[str, dict[str, Any]]:
    """Everything a bug report should hold, by heading."""
    machine = find_machine()
    ours = {name: text for name, text in sorted(os.environ.items()) if name.startswith(_VARIABLES)}

    return {
        "machine": {
            "host": machine.host,
            "system": platform.platform(),
            "cpu": machine.cpu,
            "threads": f"{machine.threads} ({machine.threads_reason})",
            "memory": f"{gib(machine.memory)} ({machine.memory_reason})",
            "load": " ".join(f"{value:.2f}" for value in os.getloadavg()),
        },
        "versions": package_versions(),
        "optional": {name: _version_of(name) for name in _OPTIONAL},
        "hdf5": _hdf5(),
        "kernels": _kernels(),
        "gpu": _gpus(machine),
        "environment": ours or {"": "none of our variables is set"},
    }


def _version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _hdf5() -> dict[str, Any]:
    import h5py

    return {"library": h5py.version.hdf5_version, "parallel": bool(h5py.get_config().mpi)}


def _gpus(machine: Machine) -> dict[str, Any]:
    if not machine.gpus:
        return {"none": machine.gpus_reason}
    return {
        f"gpu:{gpu.number}": f"{gpu.name}, {gpu.architecture}, {gib(gpu.memory)} free, "
        f"CUDA {gpu.driver}"
        for gpu in machine.gpus
    }


def _whether_kept(part: str) -> str:
    if not caching():
        return "not kept: TETRIS_SIM_NO_CACHE"
    reason = why_not_kept(part)
    return "kept" if reason is None else f"not kept: {reason}"


def _kernels() -> dict[str, Any]:
    import llvmlite.binding

    features = llvmlite.binding.get_host_cpu_features()
    vectors = [name for name in ("avx512f", "avx2", "fma", "neon", "sve") if features.get(name)]
    directory = cache_directory("kernels")
    return {
        "llvm cpu": llvmlite.binding.get_host_cpu_name(),
        "vectors": " ".join(vectors) or "none that are used",
        "cache": f"{directory} ({_whether_kept('kernels')})",
        "cached": f"{len(list(directory.glob('*.py')))} stencils",
    }
