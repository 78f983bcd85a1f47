"""Reasons to stop: signals, limits."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time

import pytest

from tetris_sim.errors import ExitCode, StopRequested
from tetris_sim.support.stopping import Stopping, find_deadline


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.01)


def test_usr1_asks_for_one_checkpoint_and_does_not_stop() -> None:
    stopping = Stopping()
    with stopping.listening():
        send(signal.SIGUSR1)
        assert stopping.save_requested()
        assert not stopping.save_requested()
        assert stopping.reason() is None


def test_term_stops_with_the_requeue_code() -> None:
    stopping = Stopping()
    with stopping.listening():
        send(signal.SIGTERM)
    reason = stopping.reason()
    assert reason is not None
    assert reason.exit_code == ExitCode.REQUEUE


def test_the_first_interrupt_stops_and_the_second_aborts(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("os._exit", ended.append)
    stopping = Stopping()
    with stopping.listening():
        send(signal.SIGINT)
        reason = stopping.reason()
        assert reason is not None
        assert reason.exit_code == ExitCode.INTERRUPTED
        assert not ended
        send(signal.SIGINT)
    assert ended == [ExitCode.INTERRUPTED]


def test_signal_actions_are_put_back() -> None:
    before = [
        signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
    ]
    with Stopping().listening():
        pass
    assert [
        signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
    ] == before


def test_another_thread_than_the_main_one_leaves_signals_alone() -> None:
    failures: list[BaseException] = []

    def listen() -> None:
        try:
            with Stopping().listening():
                pass
        except ValueError as failure:  # what signal.signal raises outside the main thread
            failures.append(failure)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert not failures


def test_a_run_stops_before_the_deadline_with_time_for_a_block_and_a_checkpoint() -> None:
    stopping = Stopping(deadline=time.time() + 100, margin=60)
    assert stopping.reason(block_seconds=10) is None
    reason = stopping.reason(block_seconds=50)
    assert reason is not None
    assert reason.exit_code == ExitCode.REQUEUE


def test_the_earlier_of_the_limit_and_the_end_of_the_job_counts() -> None:
    assert find_deadline(None, environ={}) is None
    end = int(time.time()) + 50
    assert find_deadline(1000.0, environ={"SLURM_JOB_END_TIME": str(end)}) == end
    early = find_deadline(60.0, elapsed=50.0, environ={"SLURM_JOB_END_TIME": str(end)})
    assert early is not None
    assert early < end


def test_where_nothing_is_lost_a_signal_ends_at_once_even_if_a_callback_swallows_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tetris_sim.support.stopping._AGAIN", 0.05)
    swallowing = ctypes.CFUNCTYPE(None)(lambda: send(signal.SIGINT))  # as LLVM calls Numba's cache
    stopping, went_on = Stopping(speaks=False), False
    before = signal.getsignal(signal.SIGALRM)
    ending = pytest.raises(StopRequested, match="Ctrl-C was pressed; so far")
    with ending, stopping.listening(), stopping.at_once("so far"):
        assert signal.getsignal(signal.SIGALRM) == before  # somebody else's until it is needed
        swallowing()
        went_on = True
        time.sleep(5)
    assert went_on
    assert stopping.signalled is not None
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert "ignored" not in capsys.readouterr().err
