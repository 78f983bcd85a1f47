"""The command line of `cpu.py` and `gpu.py`: the arguments of `tetris-sim bench`, and which study."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.pictures import draw_all, save
from benchmarks.study_tables import as_text
from tetris_sim.__main__ import print_error
from tetris_sim.commands import bench
from tetris_sim.errors import TetrisError
from tetris_sim.support.files import atomic_text


@dataclass(frozen=True)
class Study:
    """One of the things that a script measures.

    Attributes:
        words: what it is, for --help.
        measure: makes the plain data of it; arguments as of `bench_cpu`.
        stencils: that are taken if none are named.
    """

    words: str
    measure: Callable[..., dict[str, Any]]
    stencils: Sequence[str]


def run_script(
    device: str, usual: Study, studies: Mapping[str, Study], arguments: Sequence[str]
) -> int:
    """Measure what is asked for, print its tables and, with -o, write it and draw its pictures.

    Args:
        device: cpu or gpu.
        usual: what is measured without a flag.
        studies: the others by their flag, without dashes.
        arguments: of the command line.
    """
    parser = argparse.ArgumentParser(prog=f"{device}.py", description=usual.words)
    bench.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    kind = parser.add_mutually_exclusive_group()
    for flag, study in studies.items():
        kind.add_argument(f"--{flag}", action="store_true", help=study.words)
    args = parser.parse_args([device, *arguments])
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    chosen = next((study for flag, study in studies.items() if getattr(args, flag)), usual)

    try:
        names, shape = bench.check(args)
        found = chosen.measure(names or chosen.stencils, shape=shape, **bench.amount(args))
    except TetrisError as error:
        print_error(error, as_json=args.json)
        return int(error.exit_code)

    if args.output is not None:
        atomic_text(args.output, json.dumps(found, indent=1) + "\n")
        for name, figure in draw_all(found).items():
            save(figure, args.output.with_name(f"{args.output.stem}-{name}.svg"))
    print(json.dumps(found) if args.json else as_text(found))
    return 0
