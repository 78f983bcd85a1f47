"""A signal that comes when a run has ended changes nothing."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.support.fault_runs import start, write_plate
from tetris_sim.errors import ExitCode, StopRequested
from tetris_sim.support.stopping import Stopping, ending_quietly


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1], ids=["SIGTERM", "SIGUSR1"])
def test_a_signal_after_the_report_does_not_change_how_a_run_ended(
    tmp_path: Path, number: signal.Signals
) -> None:
    config, log = write_plate(tmp_path, steps=100, often=50, checkpoint=50), tmp_path / "log"
    with log.open("w") as said:
        process = start(said, "run", config)
        while process.poll() is None and not (tmp_path / "out" / "report.txt").exists():
            time.sleep(0.001)
        sent = 0
        while process.poll() is None:  # until the interpreter has gone
            process.send_signal(number)
            sent += 1
            time.sleep(0.002)
    assert process.returncode == 0, log.read_text()
    assert sent > 3
    assert "Done" in log.read_text()


def test_who_listened_before_a_run_ends_nothing_after_it() -> None:
    with pytest.raises(StopRequested), ending_quietly(whole_process=False):
        signal.raise_signal(signal.SIGTERM)
    with ending_quietly(whole_process=False):
        run = Stopping()
        with run.listening():
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert run.signalled is not None
        assert run.signalled.exit_code == ExitCode.REQUEUE


def test_a_process_that_is_about_to_end_hears_nothing() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with ending_quietly(whole_process=True):
            pass
        signal.raise_signal(signal.SIGTERM)
    finally:
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, before if number == signal.SIGTERM else signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
