"""`watch RESULTS`: how far a run is, from the files that it writes, in another terminal."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import math
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tetris_sim.config import read_config
from tetris_sim.config.yaml import MOST_CHARACTERS
from tetris_sim.errors import CheckpointError, ConfigError, ExitCode, TetrisError
from tetris_sim.outputs import field_file, results, tables
from tetris_sim.outputs.checkpoint import good_checkpoints
from tetris_sim.outputs.tables import LEADING, read_table
from tetris_sim.simulation.report import Report, read_report
from tetris_sim.support.files import open_given, read_given
from tetris_sim.support.wording import format_duration, format_time, printable

_BARS = "▁▂▃▄▅▆▇█"
_CURVES = 12  # lines of sparklines
_WIDE = 40  # characters of one
_NAMES = 34


@dataclass(frozen=True)
class WatchState:
    """State of a run as its files show it at one moment.

    Attributes:
        step: the latest that anything was written of; 0 if nothing was.
        steps: of the whole run; 0 if that is not known.
        time_s: simulated time of `step` [s].
        running: whether a process holds the directory.
        ended: how the run ended; empty if it has not.
        begun: when it began or was continued, as time.time() has it.
        written: when the latest step was written.
        first: the step at which it began.
        curves: values over time, by the name of a probe or a column of the statistics.
    """

    step: int
    steps: int
    time_s: float
    running: bool
    ended: str
    begun: float
    written: float
    first: int
    curves: dict[str, list[float]] = field(default_factory=dict)

    def seconds_left(self, earlier: WatchState | None = None) -> float:
        """Until the end, at the pace since an earlier look or since the run began; infinite if
        nothing is known of that.
        """
        # The pace since the last look if there was one: that since the beginning holds planning and
        # compilation.
        step, moment = (self.first, self.begun)
        if earlier is not None and earlier.step < self.step:
            step, moment = earlier.step, earlier.written
        made, took = self.step - step, self.written - moment
        if made <= 0 or took <= 0 or not self.steps:
            return math.inf
        return max(0.0, (self.steps - self.step) * took / made - (time.time() - self.written))

    def as_json(self, earlier: WatchState | None = None) -> dict[str, object]:
        """The same for programs."""
        left = self.seconds_left(earlier)
        return {
            "step": self.step,
            "steps": self.steps,
            "time_s": self.time_s,
            "running": self.running,
            "ended": self.ended,
            "seconds_left": left if math.isfinite(left) else None,
            "last": {name: values[-1] for name, values in self.curves.items()},
        }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `watch`."""
    parser.add_argument(
        "results", type=Path, metavar="RESULTS", help="the results directory of a run"
    )
    parser.add_argument("--once", action="store_true", help="say it once instead of going on")
    parser.add_argument(
        "--interval",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="time between two looks (default: 2)",
    )


def run(args: argparse.Namespace) -> int:
    """Look again and again until the run has ended."""
    if not (math.isfinite(args.interval) and args.interval > 0):
        msg = f"--interval {args.interval:g}: a number of seconds greater than 0 is wanted"
        raise ConfigError(msg)

    first: WatchState | None = None
    lines = 0
    while True:
        state = look(args.results)
        if args.json:
            print(json.dumps(state.as_json(first)), flush=True)
        else:
            over = lines if sys.stdout.isatty() else 0
            shown = list(as_lines(args.results, state, first))
            print(f"\x1b[{over}A\x1b[J" * (over > 0) + "\n".join(shown), flush=True)
            lines = len(shown)
        if args.once or not state.running:
            return ExitCode.OK
        first = first or state
        time.sleep(args.interval)


def look(directory: Path) -> WatchState:
    """Read the state of a run from its files.

    Raises:
        CheckpointError: no run has begun there.
    """
    config = directory / results.CONFIG
    if not config.exists():
        msg = f"{directory} holds no results of tetris_sim, or its run has not begun to compute yet"
        raise CheckpointError(msg)
    # Whatever was written last says how far the run is at least.
    rows, curves = _read_tables(directory)
    step, time_s, written = max([*rows, *_records(directory)], default=(0, 0.0, _written(config)))
    report, first = _read_report(directory, since=_written(config))

    return WatchState(
        step=max(step, report.step) if report else step,
        steps=(report.steps if report else 0) or _count_steps(config),
        time_s=report.time_s if report else time_s,
        running=_is_locked(directory),
        ended=report.ended if report else "",
        begun=_written(config),
        written=written,
        first=first,
        curves=curves,
    )


def _written(path: Path) -> float:
    return path.stat().st_mtime


def _read_tables(
    directory: Path,
) -> tuple[list[tuple[int, float, float]], dict[str, list[float]]]:
    """(step, time [s], when) of the last row of each table; and its columns."""
    paths = {f"{it.stem}: ": it for it in sorted((directory / tables.FOLDER).glob("*.csv"))}
    paths[""] = directory / tables.FILE

    last, curves = [], {}
    for prefix, path in paths.items():
        if not path.exists():
            continue
        with contextlib.suppress(CheckpointError):  # its first line is being written
            columns, rows = read_table(path)
            if not rows:
                continue
            last.append((int(rows[-1][0]), rows[-1][1], _written(path)))
            for k, column in enumerate(columns):
                if column not in LEADING:
                    curves[prefix + column] = [row[k] for row in rows]
    return last, curves


def _records(directory: Path) -> Iterator[tuple[int, float, float]]:
    """The latest record of the fields and the newest checkpoint, by their names."""
    for path in (directory / field_file.FOLDER).glob("fields_*.h5"):
        with contextlib.suppress(ValueError, OSError):
            yield int(path.stem.rpartition("_")[2]), 0.0, _written(path)
    for path in good_checkpoints(directory / results.CHECKPOINTS):
        with contextlib.suppress(ValueError, OSError):
            yield int(path.stem.rpartition("_")[2]), 0.0, _written(path)


def _read_report(directory: Path, *, since: float) -> tuple[Report | None, int]:
    """The report of this run, once it has ended; and the step at which this run began."""
    path = directory / results.REPORT_JSON
    try:
        # A report older than the configuration beside it is that of the run before.
        report, newer = read_report(path), _written(path) >= since
    except (OSError, CheckpointError):
        return None, 0
    return (report, report.first_step) if newer else (None, report.step)


def _count_steps(config: Path) -> int:
    """How many steps the run has; 0 if its input files are gone."""
    with contextlib.suppress(TetrisError, OSError, UnicodeError):
        text = read_given(config, 4 * MOST_CHARACTERS).decode()
        return read_config(text, name=str(config), base=Path.cwd(), environ={}).build().steps
    return 0


def _is_locked(directory: Path) -> bool:
    """Whether a process is writing there."""
    try:
        with open_given(directory / results.LOCK) as file:
            # A shared lock that is not waited for: it is refused only while a run holds its own.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def as_lines(
    directory: Path, state: WatchState, earlier: WatchState | None = None
) -> Iterator[str]:
    """Yield the state as lines for people."""
    now = printable(state.ended) or ("running" if state.running else "stopped without a report")
    yield f"{directory}: {now}"
    if state.steps:
        share = min(1.0, state.step / state.steps)
        filled = round(share * _WIDE)
        left = state.seconds_left(earlier)
        told = f", {format_duration(left)} left" if state.running and math.isfinite(left) else ""
        yield (
            f"  {share:4.0%} [{'#' * filled}{'.' * (_WIDE - filled)}] step {state.step}/"
            f"{state.steps}, t = {format_time(state.time_s)}{told}"
        )
    else:
        yield f"  step {state.step}"

    room = max(8, min(_WIDE, shutil.get_terminal_size().columns - _NAMES - 16))
    for name, values in list(state.curves.items())[:_CURVES]:
        shown = printable(name if len(name) <= _NAMES else name[: _NAMES - 1] + "…")
        yield f"  {shown:<{_NAMES}} {sparkline(values, room)} {values[-1]:.5g}"
    if len(state.curves) > _CURVES:
        yield f"  and {len(state.curves) - _CURVES} more"


def sparkline(values: Sequence[float], width: int) -> str:
    """Values as a line of bars, the lowest and the highest of all as the ends of the scale.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8), sparkline([1, 1], 8), sparkline([0, math.nan, 1], 3)
    ('▁▂▃▄▅▆▇█', '▁▁', '▁ █')
    >>> sparkline([-1e308, 1e308], 2)
    '▁█'
    """
    places = np.unique(np.linspace(0, len(values) - 1, min(width, len(values))).round().astype(int))
    chosen = np.asarray(values, float)[places]
    finite = chosen[np.isfinite(chosen)]
    if not finite.size:
        return " " * len(chosen)

    low, high = float(finite.min()), float(finite.max())
    # Halves: the difference of two numbers may be none.
    span = high / 2 - low / 2 or 1.0
    levels = ((value / 2 - low / 2) / span * (len(_BARS) - 1) for value in chosen)
    return "".join(_BARS[round(it)] if math.isfinite(it) else " " for it in levels)
