"""Sweep: one configuration run with many values of some keys, and a table of what came out.

Each run has a folder of results of its own, by number. Processes of one device each take runs from
one list, so a fast one takes more; a run that is there is not made again, and one that was stopped
goes on from its checkpoint.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.api.sweep_workers import (
    ProcessPool,
    ProcessSlot,
    Row,
    SweepCase,
    SweepResult,
    find_seats,
    make_batches,
    make_runs,
    read_row,
    row_of,
)
from tetris_sim.config import Config, load_config, make_config
from tetris_sim.config.overrides import Override
from tetris_sim.config.sections.quantities import Every
from tetris_sim.config.sections.schema import StatisticsSection
from tetris_sim.errors import (
    ConfigError,
    ConfigMistakesError,
    ExitCode,
    KeyPath,
    Mistake,
    SourcePosition,
    TetrisError,
)
from tetris_sim.outputs import results
from tetris_sim.outputs.sweep_table import ENDED, ERROR, PLAN, TABLE
from tetris_sim.support.files import atomic_text
from tetris_sim.support.wording import first_line

log = logging.getLogger("tetris_sim")

_MOST_RUNS = 100_000
_TABLES = 10  # times as long as writing a table of all runs takes, until it is written again
_MOST_LOSSES = 3  # of workers with one run: it may be the run that ends them
_ASKED = 0.5  # seconds until a job that says nothing by itself is asked again
_NEVER = Every(2.0**53, "steps")  # first and last record only
RUNS = "runs"

Values = Sequence[Any]


def sweep(
    config: Config | Mapping[str, Any] | str | Path,
    over: Mapping[str, Values],
    *,
    zipped: bool = False,
    directory: str | Path | None = None,
    processes: int | None = None,
    executor: Executor | None = None,
    part: tuple[int, int] = (1, 1),
    overrides: Sequence[str | Override] = (),
    overwrite: bool = False,
    progress: bool = False,
) -> SweepResult:
    """Run a configuration once for each combination of values.

    Everything is checked before the first run. What is there from an earlier call with the same
    arguments is kept, so a sweep that was stopped goes on.

    Args:
        config: a file, or what a file would hold.
        over: the values of each key, {"boundaries.z+.h": [10, 20], "model.material": [...]}.
        zipped: the first value of each key together, then the second; else each with each.
        directory: where everything goes; sweeps/<name of the file> if not given.
        processes: how many runs at a time; one per GPU or core that is free if not given.
        executor: makes the runs instead of processes on this computer, on workers that see the
            directory: of `concurrent.futures`, Dask (`client.get_executor()`), mpi4py.futures,
            loky or submitit. A run uses what its worker may use. Only with `processes`, here the
            number of workers, are runs made together. The caller shuts it down.
        part: (k, n) makes every n-th run, beginning with the k-th, so that n jobs share a sweep.
        overrides: changes that hold for all runs.
        overwrite: whether another sweep that is there may be replaced.
        progress: whether to draw a bar.

    Raises:
        ConfigError: a key or a value is wrong, another sweep is in the directory, or would have
            to be replaced by one of several jobs.
    """
    k, n = part
    if not 1 <= k <= n:
        msg = f"part {k} of {n}: parts are numbered from 1 to how many there are"
        raise ConfigError(msg)
    if overwrite and n > 1:
        msg = "a part of a sweep replaces nothing: what other jobs have made would go with it"
        raise ConfigError(msg)
    place = Path(directory) if directory is not None else default_directory(config)
    lists = {key: list(values) for key, values in over.items()}
    cases = make_cases(config, lists, place, zipped=zipped, overrides=overrides)
    settle(place, lists, cases, zipped=zipped, overwrite=overwrite)

    # A row beside the results says that a run has ended, so a sweep that was stopped goes on here.
    left = [case for case in cases[k - 1 :: n] if read_row(case) is None]
    told: dict[int, Row] = {}

    def tabulate() -> tuple[Row, ...]:
        rows = tuple(row_of(case, told.get(case.number)) for case in cases)
        write_table(place, rows)
        return rows

    # The table is rewritten at most so often that this takes a tenth of the time, however many runs
    # there are.
    due = 0.0
    if left:
        bar = _bar(len(cases), len(left), progress)
        if executor is None:
            seats = find_seats([case.config for case in left], processes)
            # Seats are GPUs or groups of cores; runs that may advance together form a batch for one
            # seat.
            batches, how = make_batches(left, len(seats))
            at_once = "one" if len(seats) == 1 else str(len(seats))
            replies = _run_all(batches, seats, bar)
        else:
            batches, how = make_batches(left, processes or len(left))
            at_once = "as many as there are workers"
            replies = _run_with(executor, batches, bar)

        log.info(
            "%d runs, %d of them still to be made, %s at a time; results in %s",
            *(len(cases), len(left), at_once, place),
        )
        log.info("%s", how)
        for case, reply in replies:
            told[case.number] = reply
            if time.monotonic() > due:
                begun = time.monotonic()
                tabulate()
                due = time.monotonic() + _TABLES * (time.monotonic() - begun)
    rows, before = tabulate(), -1
    # Until nothing is new: the fuller table of a job that ended meanwhile may have been replaced.
    while n > 1 and before != (before := [it[ENDED] for it in rows].count("Done")):
        rows = tabulate()
    # The first run that failed decides about the exit code; all of them are in the table.
    codes = (int(told[number].get("exit_code", 0)) for number in sorted(told))
    return SweepResult(place, lists, zipped, rows, next(filter(None, codes), 0))


def make_cases(
    config: Config | Mapping[str, Any] | str | Path,
    over: Mapping[str, Values],
    place: Path,
    *,
    zipped: bool,
    overrides: Sequence[str | Override] = (),
) -> list[SweepCase]:
    """Every run, its configuration checked and its problem built once.

    Raises:
        ConfigError: with all that is wrong, each mistake once.
    """
    if not over or not all(over.values()):
        msg = "a sweep wants at least one key with at least one value"
        raise ConfigError(msg)
    lengths = {key: len(values) for key, values in over.items()}
    if zipped and len({*lengths.values()}) > 1:
        msg = f"values that go together must be equally many, and there are {lengths}"
        raise ConfigError(msg)

    count = (
        next(iter(lengths.values())) if zipped else int(np.prod([*lengths.values()], dtype=float))
    )
    if count > _MOST_RUNS:
        msg = f"a sweep of {count} runs was asked for; at most {_MOST_RUNS} are allowed"
        raise ConfigError(msg)

    # Every run is checked before the first begins, and equal mistakes of many runs are told once.
    cases: list[SweepCase] = []
    wrong: dict[tuple[KeyPath, str], Mistake] = {}
    every = zip(*over.values(), strict=True) if zipped else itertools.product(*over.values())
    for number, values in enumerate(every, 1):
        chosen = dict(zip(over, values, strict=True))
        try:
            cases.append(
                SweepCase(number, chosen, _configure(config, chosen, place, number, overrides))
            )
        except ConfigMistakesError as error:
            for mistake in error.problems:
                wrong.setdefault((mistake.path, mistake.message), mistake)
        except TetrisError as error:
            told = Mistake((), str(error), SourcePosition(f"run {number}"))
            wrong.setdefault(((), str(error)), told)
    if wrong:
        raise ConfigMistakesError(wrong.values())
    return cases


def _configure(
    config: Config | Mapping[str, Any] | str | Path,
    chosen: Mapping[str, Any],
    place: Path,
    number: int,
    overrides: Sequence[str | Override],
) -> Config:
    """The configuration of one run: no pictures, and at least the last record of statistics."""
    changes = [
        *overrides,
        *(
            Override(f"--over {key}={value}", tuple(key.split(".")), value)
            for key, value in chosen.items()
        ),
    ]
    if isinstance(config, Config):
        made = make_config(config.resolved(), overrides=changes)
    elif isinstance(config, Mapping):
        made = make_config(config, overrides=changes)
    else:
        made = load_config(Path(config), overrides=changes)

    # Building finds what only the whole problem shows, such as a step that is too long.
    made.build()
    output = made.output.model_copy(
        update={
            "directory": str((place / RUNS / f"{number:04}").absolute()),
            "pictures": False,
            "statistics": made.output.statistics or StatisticsSection(every=_NEVER),
        }
    )
    return made.model_copy(update={"output": output})


def settle(
    place: Path,
    over: Mapping[str, Values],
    cases: Sequence[SweepCase],
    *,
    zipped: bool,
    overwrite: bool,
) -> None:
    """Make the directory, and refuse to mix two sweeps in it.

    Raises:
        ConfigError: another sweep is there, and may not be replaced.
    """
    plan = json.dumps({"over": over, "zipped": zipped, "runs": len(cases)}, indent=1) + "\n"
    path = place / PLAN
    same = path.exists() and path.read_text(encoding="utf-8") == plan
    changed = [
        case
        for case in cases
        if (case.directory / results.CONFIG).exists()
        and (case.directory / results.CONFIG).read_text(encoding="utf-8")
        != case.config.resolved_text()
    ]

    if (path.exists() and not same) or changed:
        if not overwrite:
            what = "another sweep" if not same else f"run {changed[0].number} of another one"
            msg = (
                f"{place} already holds {what}. Use --overwrite to replace it, or another --output."
            )
            raise ConfigError(msg)
        for folder in sorted((place / RUNS).glob("[0-9]*")):
            results.clear(folder)
    results.refuse_unusable(place)
    place.mkdir(parents=True, exist_ok=True)
    atomic_text(path, plan)


def write_table(place: Path, rows: Sequence[Row]) -> None:
    """Write the table of all runs; what a run does not have is empty."""
    columns = list(dict.fromkeys(name for row in rows for name in row if name != "directory"))
    text = io.StringIO()
    writer = csv.DictWriter(
        text, [*columns, "directory"], restval="", lineterminator="\n", extrasaction="raise"
    )
    writer.writeheader()
    writer.writerows(rows)
    atomic_text(place / TABLE, text.getvalue())


def _run_all(
    batches: Sequence[tuple[SweepCase, ...]],
    seats: Sequence[ProcessSlot],
    bar: Callable[[str], None],
) -> Iterator[tuple[SweepCase, Row]]:
    """Let every seat take runs until none is left; what each of them said, as it ends.

    The first is planned before, so that all find its method in the cache instead of tuning at once.
    Runs that failed together are made one by one: one alone may be what failed.
    """
    waiting: queue.SimpleQueue[tuple[SweepCase, ...]] = queue.SimpleQueue()
    ended: queue.SimpleQueue[tuple[SweepCase, Row] | BaseException] = queue.SimpleQueue()
    for batch in batches:
        waiting.put(batch)

    def work(crew: ProcessPool) -> None:
        try:
            while True:
                batch = waiting.get_nowait()
                reply = {ERROR: "alone"}
                if len(batch) > 1:
                    reply = crew.run_together([case.config for case in batch])
                for case in batch:
                    ended.put((case, crew.run(case.config) if ERROR in reply else reply))
        except queue.Empty:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            ended.put(error)

    crews = [ProcessPool(seat) for seat in seats]
    threads = [threading.Thread(target=work, args=(crew,), daemon=True) for crew in crews]
    try:
        if len(batches[0]) == 1:
            crews[0].plan(batches[0][0].config)
        for thread in threads:
            thread.start()
        for _ in range(sum(map(len, batches))):
            said = ended.get()
            if isinstance(said, BaseException):
                raise said
            bar(_label(said[0]))
            yield said
    finally:
        bar("")
        for crew in crews:
            crew.close()


def _run_with(
    executor: Executor, batches: Sequence[tuple[SweepCase, ...]], bar: Callable[[str], None]
) -> Iterator[tuple[SweepCase, Row]]:
    """The same on the workers of an executor; what one had that is lost is given to another."""
    base = str(Path.cwd())
    ended: queue.SimpleQueue[tuple[Any, tuple[SweepCase, ...]]] = queue.SimpleQueue()
    waiting: dict[int, tuple[Any, tuple[SweepCase, ...]]] = {}  # by the future's id
    losses: Counter[int] = Counter()

    def submit(batch: tuple[SweepCase, ...]) -> None:
        texts = [case.config.resolved_text() for case in batch]
        try:
            future: Any = executor.submit(make_runs, texts, base)
        except Exception as error:  # noqa: BLE001 - counts as a worker that is lost
            future = Future()
            future.set_exception(error)
        waiting[id(future)] = future, batch
        if hasattr(future, "add_done_callback"):
            future.add_done_callback(lambda it: ended.put((it, batch)))

    try:
        if len(batches[0]) == 1:
            text = batches[0][0].config.resolved_text()
            with contextlib.suppress(Exception):  # the run itself will say what is wrong
                executor.submit(make_runs, [text], base, plans=True).result()
        for batch in batches:
            submit(batch)
        while waiting:
            future, batch = _next_ended(ended, waiting)
            del waiting[id(future)]
            try:
                reply = future.result()
            except Exception as error:  # noqa: BLE001 - what runs raise is in their replies
                losses.update(case.number for case in batch)
                reply = {
                    ERROR: f"its worker was lost ({type(error).__name__}: {first_line(error)})",
                    "exit_code": int(ExitCode.INTERNAL),
                }
                again = losses[batch[0].number] < _MOST_LOSSES
            else:
                again = ERROR in reply and len(batch) > 1
            for case in batch:
                if again:
                    submit((case,))
                    continue
                bar(_label(case))
                yield case, reply
    finally:
        for future, _ in waiting.values():
            future.cancel()
        bar("")


def _next_ended(
    ended: queue.SimpleQueue[tuple[Any, tuple[SweepCase, ...]]],
    waiting: Mapping[int, tuple[Any, tuple[SweepCase, ...]]],
) -> tuple[Any, tuple[SweepCase, ...]]:
    """A future that has ended, with its runs; jobs without callbacks (submitit) are polled."""
    asked = [it for it in waiting.values() if not hasattr(it[0], "add_done_callback")]
    while True:
        with contextlib.suppress(queue.Empty):
            return ended.get(timeout=_ASKED if asked else None)
        for it in asked:
            if it[0].done():
                return it


def _bar(total: int, left: int, wanted: bool) -> Callable[[str], None]:
    """Return a callback for the progress bar, called with the name of each ended run and at the end
    with "".
    """
    if not wanted:
        return lambda name: log.info("%s", name) if name else None
    # In a notebook its widget, where that is installed.
    from tqdm.auto import tqdm

    bar = tqdm(total=total, initial=total - left, unit=" runs", dynamic_ncols=True)

    def show(name: str) -> None:
        if not name:
            bar.close()
            return
        bar.set_postfix_str(name, refresh=False)
        bar.update()

    return show


def _label(case: SweepCase) -> str:
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in case.chosen.items())


def default_directory(config: Config | Mapping[str, Any] | str | Path) -> Path:
    """Where a sweep goes if nothing else is said."""
    return Path("sweeps") / (Path(config).stem if isinstance(config, str | Path) else "sweep")
