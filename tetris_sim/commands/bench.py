"""`bench cpu`: measure how fast this machine is, beside loops a user would write by hand."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tetris_sim.catalogue import STENCIL_NAMES, named_stencil
from tetris_sim.errors import ConfigError, ExitCode

HELP = "measure how fast this machine is"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `bench`."""
    parser.add_argument("what", choices=["cpu"], help="the CPU methods beside Numba prange loops")
    parser.add_argument("--stencils", default="all", help="comma-separated names of the catalogue, or all")
    parser.add_argument("--size", type=int, default=None, metavar="N", help="points per axis (default: 1e7, 4800, 384)")
    parser.add_argument("--precision", choices=["float64", "float32"], default="float64")
    parser.add_argument("--rounds", type=int, default=7, help="timings of each candidate, interleaved (default 7)")
    parser.add_argument("--seconds", type=float, default=0.4, help="length of one timing (default 0.4)")
    parser.add_argument("-o", "--output", type=Path, default=None, help="also write the result as JSON to this file")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    from tetris_sim.bench.cpu import as_table, bench_cpu

    names = STENCIL_NAMES if args.stencils == "all" else tuple(args.stencils.split(","))
    for name in names:
        if name not in STENCIL_NAMES:
            msg = f"--stencils: {name!r} is not in the catalogue, which has {', '.join(STENCIL_NAMES)}"
            raise ConfigError(msg)
    dimensions = {named_stencil(name).stencil.ndim for name in names}
    if args.size is not None and len(dimensions) > 1:
        msg = "--size is for stencils of one dimension at a time: name them with --stencils"
        raise ConfigError(msg)
    shape = None if args.size is None else (args.size,) * dimensions.pop()
    result = bench_cpu(names, shape=shape, dtype=args.precision, rounds=args.rounds, seconds=args.seconds)
    if args.output is not None:
        args.output.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result) if args.json else as_table(result))
    return ExitCode.OK
