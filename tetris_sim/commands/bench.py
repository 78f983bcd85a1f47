"""`bench cpu`: measure how fast this machine is, beside loops a user would write by hand and beside
its own limits.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tetris_sim.catalogue import STENCIL_NAMES, named_stencil
from tetris_sim.errors import ConfigError, ExitCode

HELP = "measure how fast this machine is"

_DTYPES = {
    "float64": ("float64",),
    "float32": ("float32",),
    "float16": ("float16",),
    "both": ("float64", "float32"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `bench`."""
    parser.add_argument(
        "what",
        choices=["cpu", "gpu", "devices"],
        help="the CPU methods beside Numba loops, those of a GPU, "
        "or whole grids on sets of devices (also under MPI)",
    )
    parser.add_argument(
        "--stencils", metavar="NAMES", help="comma-separated names of the catalogue, or all"
    )
    grid = parser.add_mutually_exclusive_group()
    default = "default: 1e7, 4800, 384; GPU and devices: 1.024e7, 10240, 1024"
    grid.add_argument("--size", metavar="N", help=f"points along each axis ({default})")
    grid.add_argument(
        "--shape", metavar="NXxNYxNZ", help="points along x, y, z, for example 4800x2400"
    )
    parser.add_argument(
        "--dtype",
        choices=list(_DTYPES),
        default="float64",
        help="precision (default float64); float16: GPU, devices",
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="timings of each candidate, interleaved (default 7)"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.4, help="length of one timing (default 0.4)"
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--breakdown",
        action="store_true",
        help="what each technique adds, as in figures of the papers",
    )
    kind.add_argument(
        "--sweep", action="store_true", help="speed against size; on the CPU also against threads"
    )
    kind.add_argument(
        "--counters", action="store_true", help="GPU: hardware counters of every kernel, by ncu"
    )
    parser.add_argument(
        "--sets",
        metavar="SETS",
        help="devices: comma-separated, each as in compute.devices (default cpu,gpu,cpu+gpu)",
    )
    parser.add_argument(
        "--threads", metavar="NUMBERS", help="devices: comma-separated numbers of CPU threads"
    )
    parser.add_argument(
        "--gpu-memory", metavar="SIZE", help="devices: most memory of each GPU, for example 4GiB"
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE.json",
        help="also write the result here, and its pictures beside it",
    )


def run(args: argparse.Namespace) -> int:
    """Measure and print.

    Raises:
        ConfigError: if an argument has a value that nothing can be measured with.
    """
    if args.what == "devices":
        result = _on_devices(args)
    else:
        names, shape = _check(args)
        bench, default = _kind_of_benchmark(args)
        result = bench(names or default, shape=shape, **_amount(args))
    if result is None:
        return ExitCode.OK  # the first rank says it
    from tetris_sim.bench.tables import as_text

    if args.output is not None:
        _write(result, args.output)
    print(json.dumps(result) if args.json else as_text(result))
    return ExitCode.OK


def _amount(args: argparse.Namespace) -> dict[str, Any]:
    return {"dtypes": _DTYPES[args.dtype], "rounds": args.rounds, "seconds": args.seconds}


def _on_devices(args: argparse.Namespace) -> dict[str, Any] | None:
    """The result on the first rank, None on the others."""
    from tetris_sim.bench import devices
    from tetris_sim.scheduler.comm.agreement import everywhere
    from tetris_sim.scheduler.comm.communicator import open_communicator

    args.stencils = args.stencils or ",".join(devices.STENCILS)
    with open_communicator() as ranks:
        names, shape = everywhere(ranks, lambda: _check(args))
        wanted: dict[str, Any] = {} if args.sets is None else {"sets": tuple(args.sets.split(","))}
        if args.threads is not None:
            wanted["threads"] = tuple(map(int, args.threads.split(",")))
        if args.gpu_memory is not None:
            wanted["gpu_memory"] = args.gpu_memory
        result = devices.bench_devices(
            names or (), shape=shape, **_amount(args), **wanted, ranks=ranks
        )
    return result if ranks.rank == 0 else None


def _kind_of_benchmark(
    args: argparse.Namespace,
) -> tuple[Callable[..., dict[str, Any]], Sequence[str]]:
    """What to run, and the stencils it takes if none are named."""
    # Numba takes 0.4 s to import, and a wrong argument is found without it.
    if args.what == "gpu":
        return _kind_on_a_gpu(args)
    from tetris_sim.bench import breakdown, cpu, sweeps

    if args.breakdown:
        return breakdown.bench_breakdown, breakdown.STENCILS
    if args.sweep:
        return sweeps.bench_sweeps, sweeps.STENCILS
    return cpu.bench_cpu, STENCIL_NAMES


def _kind_on_a_gpu(args: argparse.Namespace) -> tuple[Callable[..., dict[str, Any]], Sequence[str]]:
    from tetris_sim.bench import gpu, gpu_breakdown, gpu_counters, gpu_sweeps

    if args.breakdown:
        return gpu_breakdown.bench_gpu_breakdown, gpu_breakdown.STENCILS
    if args.sweep:
        return gpu_sweeps.bench_gpu_sweep, gpu_sweeps.STENCILS
    if args.counters:
        return gpu_counters.bench_gpu_counters, gpu_counters.STENCILS
    return gpu.bench_gpu, STENCIL_NAMES


def _check(args: argparse.Namespace) -> tuple[tuple[str, ...] | None, tuple[int, ...] | None]:
    """(stencils or None for the default, shape in array order or None for the default)."""
    if args.rounds < 1:
        msg = f"--rounds is {args.rounds}: at least one timing of each candidate is needed"
        raise ConfigError(msg)
    if not (math.isfinite(args.seconds) and args.seconds > 0):
        msg = f"--seconds is {args.seconds}: a timing takes some time, for example 0.4"
        raise ConfigError(msg)
    if args.output is not None and not args.output.absolute().parent.is_dir():
        msg = f"--output: there is no folder {args.output.absolute().parent}; make it first"
        raise ConfigError(msg)
    if args.what != "gpu" and args.counters:
        msg = "--counters belongs to bench gpu"
        raise ConfigError(msg)
    if args.what == "devices" and (args.breakdown or args.sweep):
        msg = "--breakdown and --sweep belong to bench cpu and bench gpu"
        raise ConfigError(msg)
    for flag, value in (
        ("--sets", args.sets),
        ("--threads", args.threads),
        ("--gpu-memory", args.gpu_memory),
    ):
        if args.what != "devices" and value is not None:
            msg = f"{flag} belongs to bench devices"
            raise ConfigError(msg)
    counts = [] if args.threads is None else args.threads.split(",")
    if not all(count.isdecimal() and int(count) > 0 for count in counts):
        msg = (
            f"--threads is {args.threads!r}: it must be whole numbers joined by commas, like 1,2,4"
        )
        raise ConfigError(msg)
    if args.what == "cpu" and args.dtype == "float16":
        msg = "--dtype is float16, which CPUs only convert: bench gpu measures it"
        raise ConfigError(msg)
    if args.what == "gpu" and args.breakdown and args.dtype != "float64":
        msg = f"--dtype is {args.dtype}, but the breakdown on a GPU is of FP64 tensor cores"
        raise ConfigError(msg)
    names = _names(args.stencils)
    return names, _shape(args, names)


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = STENCIL_NAMES if text == "all" else tuple(text.split(","))
    for name in names:
        if name not in STENCIL_NAMES:
            msg = (
                f"--stencils: {name!r} is not in the catalogue, which has "
                f"{', '.join(STENCIL_NAMES)}"
            )
            raise ConfigError(msg)
    return names


def _shape(args: argparse.Namespace, names: tuple[str, ...] | None) -> tuple[int, ...] | None:
    """The grid that is asked for, if one is, in array order."""
    flag, text = ("--size", args.size) if args.size is not None else ("--shape", args.shape)
    if text is None:
        return None
    dimensions = {named_stencil(name).stencil.ndim for name in names or STENCIL_NAMES}
    if len(dimensions) > 1:
        msg = f"{flag} is for stencils of one dimension at a time: name them with --stencils"
        raise ConfigError(msg)
    ndim = dimensions.pop()
    counts = (text,) * ndim if flag == "--size" else tuple(reversed(text.split("x")))
    if not all(count.isdecimal() and int(count) > 0 for count in counts):
        wanted = (
            "a whole number of points, at least 1"
            if flag == "--size"
            else "such numbers joined by x, like 480x240"
        )
        msg = f"{flag} is {text!r}: it must be {wanted}"
        raise ConfigError(msg)
    if len(counts) != ndim:
        msg = (
            f"--shape {text} has {len(counts)} axes, but the stencils {', '.join(names or ())} "
            f"have {ndim}"
        )
        raise ConfigError(msg)
    return tuple(map(int, counts))


def _write(result: dict[str, Any], path: Path) -> None:
    from tetris_sim.bench.plots import draw_all, save
    from tetris_sim.files import atomic_text

    atomic_text(path, json.dumps(result, indent=1) + "\n")
    for name, figure in draw_all(result).items():
        save(figure, path.with_name(f"{path.stem}-{name}.svg"))
