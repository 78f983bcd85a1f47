"""What campaigns share: their arguments, their processes, and what they tell."""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

Task = TypeVar("Task")
Tally = TypeVar("Tally")


def arguments(doc: str, what: str, kinds: Collection[str]) -> argparse.ArgumentParser:
    """The arguments of every campaign.

    Args:
        doc: what the campaign is for.
        what: is counted: how many of them are wanted.
        kinds: of them.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument(what, type=int)
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=list(kinds))
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin nothing after that")
    parser.add_argument("--json", type=Path, help="written as it goes")
    return parser


def in_jobs(
    attack: Callable[[Task], Tally],
    tasks: list[Task],
    args: argparse.Namespace,
    told: Callable[[list[Tally]], None],
) -> list[Tally]:
    """What comes of each task, by so many processes that share what this one has loaded.

    Args:
        attack: what a task asks for.
        tasks: those that come first are begun first; none is begun when the time is over.
        args: of `arguments`.
        told: called with all that is known whenever a task has ended.
    """
    end = time.monotonic() + args.seconds
    found: list[Tally] = []

    def add(tally: Tally) -> None:
        found.append(tally)
        told(found)

    if args.jobs == 1:
        for task in tasks:
            if time.monotonic() < end:
                add(attack(task))
        return found
    # Not a pool's daemons: they could have no children.
    from concurrent.futures import ProcessPoolExecutor, as_completed

    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(args.jobs, mp_context=fork) as pool:
        asked = [pool.submit(attack, task) for task in tasks]
        for ended in as_completed(asked):
            if not ended.cancelled():
                add(ended.result())
            if time.monotonic() >= end:
                for late in asked:
                    late.cancel()
    return found


def tell(
    args: argparse.Namespace, what: str, tallies: list[Any], start: float, *, ended: bool = True
) -> int:
    """Write what happened so far, and show it once it has ended; the exit code.

    Args:
        args: of `arguments`.
        what: is counted: an attribute of each tally.
        tallies: one of each kind.
        start: when it began, of the monotonic clock.
        ended: whether nothing comes any more.
    """
    told = {
        "seed": args.seed,
        what: sum(getattr(it, what) for it in tallies),
        "seconds": round(time.monotonic() - start),
        "jobs": args.jobs,
        "date": time.strftime("%Y-%m-%d"),
        "kinds": [asdict(it) for it in tallies],
    }
    text = json.dumps(told, indent=1) + "\n"
    if args.json is not None:
        args.json.write_text(text)
    if ended:
        sys.stdout.write(text)
    return int(any(it.failures for it in tallies))
