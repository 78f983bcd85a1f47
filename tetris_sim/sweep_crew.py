"""Crew: the processes of a sweep, each with cores or a GPU of its own, and how they are talked to.

Lines of JSON go both ways: a configuration in, what became of it out. `python -m
tetris_sim.sweep_crew` is the other end. When the line to it breaks, it saves its run and ends, so
that a sweep that is killed leaves nobody behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tetris_sim.config import Config
from tetris_sim.errors import ExitCode, StopRequested, TetrisError
from tetris_sim.scheduler.machine.devices import choose_devices
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.support.wording import first_line

_STATES = 4  # times the state that a run takes, with what it is compiled by and written from
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_LEAVING = 60.0  # seconds that a process may take to save its run


@dataclass(frozen=True)
class Seat:
    """What one process computes on.

    Attributes:
        cores: the processors that it may use.
        gpu: as it is named in CUDA_VISIBLE_DEVICES; None for none of its own.
    """

    cores: tuple[int, ...]
    gpu: str | None = None


def find_seats(configs: Sequence[Config], processes: int | None = None) -> list[Seat]:
    """Where the runs of a sweep compute: one at a time per GPU, else with as few cores as it says.

    Args:
        configs: of the runs.
        processes: how many at a time; as many as there are places for if not given.
    """
    machine, compute = find_machine(), configs[0].compute
    devices, _ = choose_devices(machine, compute)
    gpus = [device.number for device in devices if device.kind == "gpu"]
    if not isinstance(compute.devices, str):
        gpus, most = [], 1  # they were named one by one, for one run
    elif gpus:
        most = len(gpus)
    else:
        threads = 1 if compute.threads == "auto" else compute.threads
        state = configs[0].build().state_bytes
        most = min(machine.threads // threads, int(machine.memory // (_STATES * state)))

    n = max(1, min(len(configs), processes or most))
    visible = os.environ.get(_VISIBLE, "").split(",")
    cores = machine.cores
    per_seat = max(1, min(len(cores), machine.threads) // n)
    seats = []
    for i in range(n):
        own = [cores[(i * per_seat + k) % len(cores)] for k in range(per_seat)]
        number = gpus[i % len(gpus)] if gpus else None
        named = number is not None and number < len(visible) and visible[number]
        gpu = None if number is None else str(named or number)
        seats.append(Seat(tuple(own), gpu))
    return seats


class Crew:
    """One process that makes runs, one after the other; begun with the first, anew if it dies."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._process: subprocess.Popen[str] | None = None
        self._closed = False

    def plan(self, config: Config) -> None:
        """Find the fastest method for a run, so that others find it in the cache."""
        self._ask({"plan": config.resolved_text()})

    def run(self, config: Config) -> dict[str, Any]:
        """Make a run, or go on with it; how it `ended` or what `error` it ended with."""
        return self._ask({"run": config.resolved_text()})

    def run_together(self, configs: Sequence[Config]) -> dict[str, Any]:
        """The same of runs that are made as planes of one grid."""
        return self._ask({"together": json.dumps([it.resolved_text() for it in configs])})

    def close(self) -> None:
        """End the process; a run that is under way is saved first."""
        self._closed = True
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_LEAVING)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _ask(self, order: dict[str, str]) -> dict[str, Any]:
        process = self._begin()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            reply = process.stdout.readline()
        except (OSError, ValueError):
            reply = ""
        if reply:
            told: dict[str, Any] = json.loads(reply)
            return told

        code = process.wait()
        self._process = None
        return {
            "error": f"its process ended with code {code}",
            "exit_code": int(ExitCode.INTERNAL),
        }

    def _begin(self) -> subprocess.Popen[str]:
        if self._process is None:
            environ = dict(os.environ)
            if self._seat.gpu is not None:
                environ[_VISIBLE] = self._seat.gpu
            cores = ",".join(map(str, self._seat.cores))
            root = str(Path(__file__).resolve().parents[1])
            environ["PYTHONPATH"] = os.pathsep.join(
                [root, *filter(None, [environ.get("PYTHONPATH")])]
            )

            self._process = subprocess.Popen(
                [sys.executable, "-m", "tetris_sim.sweep_crew", cores],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environ,
            )
        return self._process


def _serve(cores: Sequence[int]) -> None:
    """Do what the lines of standard input say."""
    os.sched_setaffinity(0, cores)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a run listens for itself
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed is no reply
    orders: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    running = threading.Event()

    def listen() -> None:
        for line in sys.stdin:
            orders.put(line)
        orders.put(None)
        if running.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=listen, daemon=True).start()
    while (line := orders.get()) is not None:
        running.set()
        reply = _obey(json.loads(line))
        running.clear()
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def _read(text: str) -> Config:
    from tetris_sim.config import read_config

    return read_config(text, name="the sweep", base=Path.cwd(), environ={})


def _obey(order: dict[str, str]) -> dict[str, Any]:
    from tetris_sim.scheduler.comm.communicator import Alone
    from tetris_sim.simulation.launch import launch
    from tetris_sim.simulation.preparation import prepare
    from tetris_sim.sweep_batch import launch_batch

    ((verb, text),) = order.items()
    try:
        if verb == "together":
            texts = json.loads(text)
            return launch_batch([_read(it) for it in texts])
        config = _read(text)
        if verb == "plan":
            prepare(config, Alone())
            return {}
        report = launch(config, resume="auto")
        return {"ended": report.ended, "exit_code": report.exit_code}
    except StopRequested as stopped:
        return {"ended": f"Stopped early: {stopped}", "exit_code": int(stopped.exit_code)}
    except TetrisError as error:
        return {"error": first_line(error), "exit_code": int(error.exit_code)}
    except Exception as error:  # noqa: BLE001 - told in the table, and the other runs go on
        said = f"{type(error).__name__}: {first_line(error)}"
        return {"error": said, "exit_code": int(ExitCode.INTERNAL)}


if __name__ == "__main__":
    _serve([int(core) for core in sys.argv[1].split(",")])
