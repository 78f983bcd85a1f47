"""Many runs of one configuration: `sweep CONFIG --over KEY=VALUES` makes a table of them, and `fit
CONFIG --data CSV --vary KEY=LOW:HIGH` finds the parameters that probes have measured.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tetris_sim.commands import add_config_arguments, overrides
from tetris_sim.config.yaml import read_yaml
from tetris_sim.errors import ConfigError, ConfigMistakesError, ExitCode
from tetris_sim.outputs.sweep_table import ERROR, NUMBER, TABLE
from tetris_sim.scheduler.comm.communicator import open_executor
from tetris_sim.scheduler.comm.peers import count_ranks
from tetris_sim.support.files import atomic_text
from tetris_sim.support.wording import describe, printable_lines

if TYPE_CHECKING:
    from tetris_sim.api.sweep_workers import SweepResult

_SHOWN = 20  # rows of the table

# As examples/slurm_sweep.sh, with one sweep's command in it.
_ARRAY = """\
#!/bin/bash
# Made by `tetris-sim sweep --slurm-array`. Add what your cluster wants: cores, GPUs, account.
#SBATCH --job-name=tetris-sim-sweep
#SBATCH --array=1-{jobs}
#SBATCH --ntasks=1
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%A_%a.out

cd {here} || exit
export SRUN_CPUS_PER_TASK=${{SLURM_CPUS_PER_TASK:-1}}
srun {command} --part "$SLURM_ARRAY_TASK_ID/{jobs}"
code=$?

if [ "$code" -eq 75 ]; then
    echo "stopped with a checkpoint: job $SLURM_JOB_ID goes back into the queue"
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
fi
exit "$code"
"""
_RANGE = re.compile(r"([^:,\[\]{}]+):([^:,\[\]{}]+):(\d{1,6})(log)?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `sweep`."""
    add_config_arguments(parser)
    parser.add_argument(
        "--over",
        action="append",
        required=True,
        metavar="KEY=VALUES",
        help="values of a key: a list (model.material=copper,steel), or FROM:TO:COUNT evenly "
        "spaced numbers with both ends (boundaries.z+.h=10:500:20; 10:500:20log by equal "
        "factors); may be repeated",
    )

    parser.add_argument(
        "--zip",
        action="store_true",
        help="the first values of all keys together, then the second (default: each with each)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIRECTORY",
        help="where all runs and table.csv go (default: sweeps/<name of the file>); a sweep that "
        "is there goes on",
    )
    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help="runs at a time (default: one per GPU, or per core that a run leaves free)",
    )
    parser.add_argument(
        "--part",
        default="1/1",
        metavar="K/N",
        help="make every N-th run, beginning with the K-th: N jobs share a sweep",
    )
    parser.add_argument(
        "--slurm-array",
        type=int,
        metavar="N",
        help="make no run; write slurm_array.sh, N jobs of Slurm that share the sweep",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace another sweep that is there"
    )


def run(args: argparse.Namespace) -> int:
    """Check all runs, make those that are not there, print the table."""
    from tetris_sim.api.sweeping import sweep

    over = {}
    for text in args.over:
        key, values = read_over(text)
        if key in over:
            msg = f"--over {text}: {key} is given twice"
            raise ConfigError(msg)
        over[key] = values
    if args.processes is not None and args.processes < 1:
        msg = f"--processes {args.processes}: a whole number, 1 or more, is wanted"
        raise ConfigError(msg)

    part = re.fullmatch(r"(\d{1,6})/(\d{1,6})", args.part)
    if part is None:
        msg = f"--part {args.part}: K/N is wanted, such as 2/8"
        raise ConfigError(msg)

    def make(executor: Executor | None = None) -> SweepResult:
        return sweep(
            args.config,
            over,
            zipped=args.zip,
            directory=args.output,
            processes=args.processes if executor is None else n_ranks - 1,
            executor=executor,
            part=(int(part[1]), int(part[2])),
            overrides=overrides(args),
            overwrite=args.overwrite,
            progress=sys.stderr.isatty() and not args.quiet and not args.no_progress,
        )

    if args.slurm_array is not None:
        return _write_array(args, over)

    n_ranks = count_ranks()
    if n_ranks == 1:
        return _tell(args, make())
    with open_executor(n_ranks) as executor:
        return ExitCode.OK if executor is None else _tell(args, make(executor))


def _write_array(args: argparse.Namespace, over: dict[str, list[Any]]) -> int:
    """Check all runs, and write the script of an array of jobs that make them."""
    from tetris_sim.api.sweeping import default_directory, make_cases, settle

    if args.slurm_array < 1 or args.part != "1/1":
        msg = "--slurm-array wants a number of jobs, 1 or more, and gives each its --part itself"
        raise ConfigError(msg)
    place = args.output or default_directory(args.config)
    cases = make_cases(args.config, over, place, zipped=args.zip, overrides=overrides(args))
    settle(place, over, cases, zipped=args.zip, overwrite=args.overwrite)

    words = [sys.executable, "-m", "tetris_sim", "sweep", str(args.config), "-o", str(place)]
    for flag, given in (("--over", args.over), ("--set", args.set)):
        words += [word for text in given for word in (flag, text)]
    for flag, value in (("--device", args.device), ("--threads", args.threads)):
        words += [flag, value] if value is not None else []
    words += ["--zip"] if args.zip else []
    path = place / "slurm_array.sh"
    jobs = min(args.slurm_array, len(cases))
    text = _ARRAY.format(jobs=jobs, here=shlex.quote(os.getcwd()), command=shlex.join(words))
    atomic_text(path, text)
    if args.json:
        print(json.dumps({"script": str(path), "jobs": jobs, "runs": len(cases)}))
    elif not args.quiet:
        print(printable_lines(f"{len(cases)} runs in {jobs} jobs: sbatch {path}"))
    return ExitCode.OK


def _tell(args: argparse.Namespace, result: SweepResult) -> int:
    """Print the table and what failed; the exit code."""
    table = result.directory / TABLE
    if args.json:
        print(json.dumps({"table": str(table), "rows": list(result.rows)}, indent=1))
    elif not args.quiet:
        print("\n".join(as_lines(result.rows)))
        print(f"{len(result.rows)} runs, {len(result.failed)} failed: {table}")
    for row in result.failed:
        print(f"tetris-sim: run {row['run']}: {row[ERROR]}", file=sys.stderr)
    return result.exit_code


def read_over(text: str) -> tuple[str, list[Any]]:
    """A key and its values, as after --over.

    >>> read_over("boundaries.z+.h=10:500:3"), read_over("model.material=copper, steel")
    (('boundaries.z+.h', [10.0, 255.0, 500.0]), ('model.material', ['copper', 'steel']))
    >>> read_over("grid.size=[1,2],[3,4]"), read_over("time.dt=1 ms:100 ms:3log")
    (('grid.size', [[1, 2], [3, 4]]), ('time.dt', ['1.0 ms', '10.0 ms', '100.0 ms']))

    Raises:
        ConfigError: it is not KEY=VALUES.
    """
    key, equals, given = text.partition("=")
    key = key.strip()
    if not equals or not key or not given.strip():
        msg = (
            f"--over {text}: KEY=A,B,C or KEY=FROM:TO:COUNT is wanted, for example "
            "boundaries.z+.h=10:500:20 or model.material=copper,steel"
        )
        raise ConfigError(msg)

    evenly = _RANGE.fullmatch(given)
    ends = [NUMBER.fullmatch(end) for end in evenly.group(1, 2)] if evenly else []
    if evenly and all(ends):
        return key, _between(text, [(it[1], it[2]) for it in ends if it], evenly)
    if _looks_even(given):
        msg = (
            f"--over {text}: a whole number of values is missing at the end of FROM:TO:COUNT; "
            f"{key}={':'.join(given.split(':')[:2])}:5 makes five of them"
        )
        raise ConfigError(msg)
    try:
        root, mistakes = read_yaml(f"[{given}]", f"--over {text}")
    except ConfigMistakesError as error:
        root, mistakes = None, list(error.problems)
    values = None if root is None or mistakes else root.plain()
    if not isinstance(values, list) or not values or None in values:
        msg = f"--over {text}: {describe(given)} is no list of values, such as copper,steel"
        raise ConfigError(msg)
    return key, values


def _looks_even(given: str) -> bool:
    """Whether values look like a range that is not complete: 10:50, 1 mm:5 mm, 10:50:0.5."""
    ends = given.strip().removesuffix(":").split(":")
    return len(ends) in (2, 3) and all(NUMBER.fullmatch(end) for end in ends)


def _between(text: str, ends: Sequence[tuple[str, str]], spec: re.Match[str]) -> list[Any]:
    """So many numbers from one to the other, both included, with their unit."""
    (low, unit), (high, other) = ends
    begin, end, count = float(low), float(high), int(spec[3])
    if unit != other:
        msg = f"--over {text}: both ends want the same unit, and have {unit!r} and {other!r}"
        raise ConfigError(msg)
    if count < 1 or (spec[4] and min(begin, end) <= 0):
        msg = f"--over {text}: a count of 1 or more is wanted, and with log ends above 0"
        raise ConfigError(msg)
    spaced = np.geomspace if spec[4] else np.linspace
    # 15 digits: 0.1 stays 0.1
    numbers = [float(f"{number:.15g}") for number in spaced(begin, end, count)]
    return [f"{number!r} {unit}" for number in numbers] if unit else list(numbers)


def as_lines(rows: tuple[dict[str, object], ...]) -> list[str]:
    """The table for people: the first rows, without what has no room."""
    names = [name for name in rows[0] if name not in ("directory", "error")]
    cells = [names, *([_cell(row.get(name, "")) for name in names] for row in rows[:_SHOWN])]
    widths = [max(len(line[k]) for line in cells) for k in range(len(names))]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    ]
    more = len(rows) - _SHOWN
    return [*lines, f"and {more} more"] if more > 0 else lines


def _cell(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def add_fit_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `fit`."""
    add_config_arguments(parser)

    parser.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="CSV",
        help="a column time, and one for each probe by its name, with units: time [s], core [degC]",
    )
    parser.add_argument(
        "--vary",
        action="append",
        required=True,
        metavar="KEY=LOW:HIGH",
        help="a key and the range of its value (materials.tim.conductivity=1:10), or a field and"
        " that of its initial values (temperature=20:90); may be repeated",
    )
    parser.add_argument(
        "--smooth",
        type=float,
        default=0.0,
        metavar="WEIGHT",
        help="of the integral of |grad u|^2 of unknown fields beside the sum of squares",
    )
    parser.add_argument(
        "--derivatives",
        choices=("auto", "differences", "adjoints"),
        default="auto",
        help="by runs side by side, or by runs forwards and back (default: these for fields)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="DIRECTORY",
        help="where all runs, fit.json and fit.html go (default: fits/<name of the file>)",
    )
    parser.add_argument(
        "--processes", type=int, metavar="N", help="runs at a time (default: as of sweep)"
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace runs of another fit that are there"
    )


def run_fit(args: argparse.Namespace) -> int:
    """Make the runs, print the parameters."""
    from tetris_sim.api.fitting import PAGE, fit

    vary = {}
    for text in args.vary:
        key, equals, given = text.partition("=")
        if not equals or key in vary:
            msg = f"--vary {text}: KEY=LOW:HIGH is wanted, and each key once"
            raise ConfigError(msg)
        vary[key.strip()] = given
    result = fit(
        args.config,
        args.data,
        vary,
        smooth=args.smooth,
        derivatives=args.derivatives,
        directory=args.output,
        processes=args.processes,
        overrides=overrides(args),
        overwrite=args.overwrite,
    )
    if args.json:
        said = {
            "parameters": [it.as_plain() for it in result.parameters],
            "runs": result.runs,
            "derivatives": result.derivatives,
        }
        print(json.dumps(said, indent=1))
    elif not args.quiet:
        print("\n".join(result.as_lines()))
        print(result.directory / PAGE)
    return ExitCode.OK
