"""`bench cpu`: measure how fast this machine is, beside loops a user would write by hand and beside
its own limits.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tetris_sim.errors import ConfigError, ExitCode, UnsupportedError
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, named_stencil
from tetris_sim.support.files import atomic_text

if TYPE_CHECKING:
    from tetris_sim.bench.result import BenchResult


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
        nargs="?",
        default="cpu",
        choices=["cpu", "gpu", "devices", "scaling"],
        help="the CPU methods beside Numba loops (the default), those of a GPU, "
        "whole grids on sets of devices (also under MPI), or whole runs on 1, 2, 4, ... GPUs",
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
        "--rounds", type=int, help="timings of each candidate, interleaved (default 7; scaling 3)"
    )
    parser.add_argument(
        "--seconds", type=float, help="length of one timing (default 0.4; scaling 5)"
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
        "--gpus", metavar="N", type=int, help="scaling: most GPUs (default: all that are found)"
    )
    parser.add_argument(
        "--problems", metavar="NAMES", help="scaling: comma-separated (default: all of them)"
    )
    parser.add_argument(
        "--scale",
        metavar="FACTOR",
        type=float,
        help="scaling: times the points of problems that fill GPUs of 80 GB (default 1)",
    )
    parser.add_argument(
        "--ranks",
        action="store_true",
        help="scaling: a rank for each GPU, started by mpirun, instead of one process",
    )

    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE.json",
        help="also write the result here",
    )


def run(args: argparse.Namespace) -> int:
    """Measure and print.

    Raises:
        ConfigError: if an argument has a value that nothing can be measured with.
    """
    result = measure(args)
    if result is None:
        return ExitCode.OK  # the first rank says it
    from tetris_sim.bench.tables import as_text

    data = result.as_json()
    if args.output is not None:
        atomic_text(args.output, json.dumps(data, indent=1) + "\n")
    print(json.dumps(data) if args.json else as_text(result))
    return ExitCode.OK


def measure(args: argparse.Namespace) -> BenchResult | None:
    """Run the benchmark that was asked for; None on all ranks but the first."""
    if args.what == "devices":
        return _on_devices(args)
    if args.what == "scaling":
        return _scaling(args)
    names, shape = check(args)
    names = names or STENCIL_NAMES
    # Numba takes 0.4 s to import, and a wrong argument is found without it.
    if args.what == "gpu":
        from tetris_sim.bench.gpu import bench_gpu

        return bench_gpu(names, shape=shape, **amount(args))
    from tetris_sim.bench.candidates import bench_cpu

    return bench_cpu(names, shape=shape, **amount(args))


def amount(args: argparse.Namespace) -> dict[str, Any]:
    """How much is measured, as the benchmarks take it."""
    return {"dtypes": _DTYPES[args.dtype], "rounds": args.rounds, "seconds": args.seconds}


def _on_devices(args: argparse.Namespace) -> BenchResult | None:
    """The result on the first rank, None on the others."""
    from tetris_sim.bench import gpu
    from tetris_sim.scheduler.comm.communicator import everywhere, open_communicator

    args.stencils = args.stencils or ",".join(gpu.STENCILS)
    with open_communicator() as ranks:
        names, shape = everywhere(ranks, lambda: check(args))
        wanted: dict[str, Any] = {} if args.sets is None else {"sets": tuple(args.sets.split(","))}
        if args.threads is not None:
            wanted["threads"] = tuple(map(int, args.threads.split(",")))
        if args.gpu_memory is not None:
            wanted["gpu_memory"] = args.gpu_memory
        result = gpu.bench_devices(names or (), shape=shape, **amount(args), **wanted, ranks=ranks)
    return result if ranks.rank == 0 else None


def _scaling(args: argparse.Namespace) -> BenchResult:
    from tetris_sim.bench.scaling import PROBLEMS, bench_scaling
    from tetris_sim.scheduler.machine.machine import find_machine

    check(args)
    names = tuple(PROBLEMS) if args.problems is None else tuple(args.problems.split(","))
    for name in names:
        if name not in PROBLEMS:
            msg = f"--problems: {name!r} was found; {', '.join(PROBLEMS)} are wanted"
            raise ConfigError(msg)
    scale = 1.0 if args.scale is None else args.scale
    if not (math.isfinite(scale) and scale > 0):
        msg = f"--scale is {args.scale}: a factor greater than 0 is wanted, for example 0.25"
        raise ConfigError(msg)

    machine = find_machine()
    found = len(machine.gpus)
    most = found if args.gpus is None else args.gpus
    if not 1 <= most <= found:
        why = machine.gpus_reason if found == 0 else f"this machine has {found}"
        msg = f"bench scaling --gpus {most}: {why}"
        raise UnsupportedError(msg)
    return bench_scaling(
        names,
        most=most,
        scale=scale,
        rounds=args.rounds,
        seconds=args.seconds,
        ranks=args.ranks,
    )


def check(args: argparse.Namespace) -> tuple[tuple[str, ...] | None, tuple[int, ...] | None]:
    """(stencils or None for the default, shape in array order or None for the default).

    Raises:
        ConfigError: if an argument has a value that nothing can be measured with.
    """
    long = args.what == "scaling"
    args.rounds = (3 if long else 7) if args.rounds is None else args.rounds
    args.seconds = (5.0 if long else 0.4) if args.seconds is None else args.seconds
    if args.rounds < 1:
        msg = f"--rounds is {args.rounds}: at least one timing of each candidate is needed"
        raise ConfigError(msg)
    if not (math.isfinite(args.seconds) and args.seconds > 0):
        msg = f"--seconds is {args.seconds}: a timing takes some time, for example 0.4"
        raise ConfigError(msg)
    if args.output is not None and not args.output.absolute().parent.is_dir():
        msg = f"--output: there is no folder {args.output.absolute().parent}; make it first"
        raise ConfigError(msg)

    for flag, value in (
        ("--sets", args.sets),
        ("--threads", args.threads),
        ("--gpu-memory", args.gpu_memory),
    ):
        if args.what != "devices" and value is not None:
            msg = f"{flag} belongs to bench devices"
            raise ConfigError(msg)
    for flag, given in (
        ("--gpus", args.gpus is not None),
        ("--problems", args.problems is not None),
        ("--scale", args.scale is not None),
        ("--ranks", args.ranks),
    ):
        if args.what != "scaling" and given:
            msg = f"{flag} belongs to bench scaling"
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
