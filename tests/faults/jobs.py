"""What campaigns share: their arguments, their processes, and what they tell."""

from __future__ import annotations

import argparse
import json
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
    parser.add_argument("--json", type=Path)
    return parser


def in_jobs(attack: Callable[[Task], Tally], tasks: list[Task], jobs: int) -> list[Tally]:
    """What comes of each task, by so many processes that share what this one has loaded."""
    if jobs == 1:
        return [attack(task) for task in tasks]
    # Not a pool's daemons: they could have no children.
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        return list(pool.map(attack, tasks))


def tell(args: argparse.Namespace, what: str, tallies: list[Any], start: float) -> int:
    """Write what happened; the exit code.

    Args:
        args: of `arguments`.
        what: is counted: an attribute of each tally.
        tallies: one of each kind.
        start: when it began, of the monotonic clock.
    """
    told = {
        "seed": args.seed,
        what: sum(getattr(it, what) for it in tallies),
        "seconds": round(time.monotonic() - start),
        "jobs": args.jobs,
        "date": time.strftime("%Y-%m-%d"),
        "kinds": [asdict(it) for it in tallies],
    }
    text = json.dumps(told, indent=1)
    sys.stdout.write(text + "\n")
    if args.json is not None:
        args.json.write_text(text + "\n")
    return int(any(it.failures for it in tallies))
