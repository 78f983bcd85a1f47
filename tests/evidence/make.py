"""Write down what must not change: `python -m tests.evidence.make OUT.json`.

`--device gpu` makes the list of a GPU; `--only PATTERN` those whose key matches; `--jobs N` shares
the list over processes; `--golden DIR` writes checkpoints and what comes out of them; `--restart
DIR` adds what comes out of them today.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import tetris_sim as ts

from . import body_cases, error_cases, files, names, plans, stencil_cases
from .digests import Case, final_state, in_part, outcome

_OURS = ("TETRIS_SIM_DEVICES", "TETRIS_SIM_THREADS", "TETRIS_SIM_METHOD")


def cases(device: str) -> Iterator[Case]:
    """Key and call of everything."""
    if device == "gpu":
        for key, config in (*stencil_cases.gpu_cases(), *body_cases.gpu_cases()):
            yield key, partial(final_state, config)
        return
    yield from names.cases()
    yield from error_cases.cases()
    for key, config in (*stencil_cases.cpu_cases(), *body_cases.cpu_cases()):
        yield key, partial(final_state, config)
    yield from plans.cases()
    yield from files.cases()


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?", help="where the digests go")
    parser.add_argument("--device", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--only", default="", help="a regular expression that keys match")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--part", default="0/1", help="I/N: this part of so many")
    parser.add_argument("--golden", type=Path, help="write checkpoints there")
    parser.add_argument("--restart", type=Path, help="go on from the checkpoints there")
    args = parser.parse_args()

    prepare()
    if args.golden is not None:
        files.make_golden(args.golden)
    if args.out is None:
        return 0
    start = time.monotonic()
    found = in_processes(args) if args.jobs > 1 else make(args)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    sys.stderr.write(f"{len(found)} keys in {time.monotonic() - start:.0f} s of {ts.__file__}\n")
    return 0


def prepare() -> None:
    """What must be the same whoever calls."""
    faulthandler.enable()
    for name in _OURS:
        os.environ.pop(name, None)
    os.environ["COLUMNS"] = "100"
    os.environ["NO_COLOR"] = "1"
    logging.getLogger("tetris_sim").setLevel(logging.CRITICAL)


def make(args: argparse.Namespace) -> dict[str, str]:
    """All cases of this process."""
    part, parts = (int(word) for word in args.part.split("/"))
    found: dict[str, str] = {}
    listed = list(cases(args.device))
    if args.restart is not None:
        listed += files.restart_cases(args.restart)
    keys = [key for key, _ in listed]
    assert len(set(keys)) == len(keys), sorted({key for key in keys if keys.count(key) > 1})
    wanted = [
        (key, call)
        for key, call in listed
        if re.search(args.only, key) and in_part(key, part, parts)
    ]
    start = last = time.monotonic()
    for number, (key, call) in enumerate(wanted):
        found[key] = outcome(call)
        now = time.monotonic()
        if now - last > 5 or number == len(wanted) - 1:
            sys.stderr.write(f"{number + 1}/{len(wanted)} {now - start:.0f} s {key}\n")
        last = now
    return found


def in_processes(args: argparse.Namespace) -> dict[str, str]:
    """The same in several processes, one after the other in each."""
    with tempfile.TemporaryDirectory(prefix="tetris_sim_evidence_") as folder:
        outs = [Path(folder) / f"{part}.json" for part in range(args.jobs)]
        children = []
        for part, out in enumerate(outs):
            words = [sys.executable, "-m", "tests.evidence.make", str(out)]
            words += ["--device", args.device, "--only", args.only]
            words += ["--part", f"{part}/{args.jobs}"]
            if args.restart is not None:
                words += ["--restart", str(args.restart)]
            children.append(subprocess.Popen(words))
        failed = [child.wait() for child in children]
        if any(failed):
            msg = f"processes ended with {failed}"
            raise RuntimeError(msg)
        found: dict[str, str] = {}
        for out in outs:
            found.update(json.loads(out.read_text()))
        return found


if __name__ == "__main__":
    sys.exit(main())
