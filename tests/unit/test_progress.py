"""What the user sees while a run goes on."""

from __future__ import annotations

import logging

import pytest

from tests.support.cases import make_problem
from tetris_sim.model.boundary import Boundary, Neumann
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.simulation import background as progress_module
from tetris_sim.simulation.background import Progress
from tetris_sim.support.wording import format_duration, format_time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    return now


def progress(*, bar: bool = False) -> Progress:
    stencil = named_stencil("heat-2d").stencil
    problem, _ = make_problem(
        stencil, Boundary.everywhere(Neumann(), 2), shape=(100, 200), steps=1000
    )
    return Progress(problem, 0, bar=bar)


def test_rate_and_time_left_come_from_the_last_seconds(clock: list[float]) -> None:
    shown = progress()
    shown.update(0)
    clock[0] += 60.0
    shown.update(100)  # a slow start, of which nothing may be left in the rate later
    for step in range(110, 310, 10):
        clock[0] += 1.0
        shown.update(step)
    # 10 steps per second of 20000 points; 700 steps are left.
    assert shown.describe() == "step 300/1000, t = 300 s, 0.0002 GStencil/s, 1:10 min left"


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def test_without_a_terminal_a_line_is_logged_every_ten_seconds(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Lines()
    monkeypatch.setattr(progress_module.log, "handlers", [kept])
    monkeypatch.setattr(progress_module.log, "level", logging.INFO)
    progress_module.log.manager._clear_cache()  # type: ignore[attr-defined]  # of what was enabled before
    shown = progress()
    for step in range(0, 300, 10):
        shown.update(step)
        clock[0] += 1.0
    shown.close()
    assert [line[:5] for line in kept.lines] == [" 11 %", " 22 %"]


def test_a_bar_shows_percent_and_rate(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = progress(bar=True)
    shown.update(0)
    clock[0] += 1.0
    shown.update(500)
    shown.close()
    text = capsys.readouterr().err
    assert " 50 %|" in text
    assert "0.01 GStencil/s, 1 s left" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.019222, "19.22 ms"),
        (1.778e-6, "1.778 us"),
        (300.0, "300 s"),
        (86400.0, "86400 s"),
        (1.9e6, "21.99 days"),
    ],
)
def test_simulated_times_have_a_fitting_unit(seconds: float, text: str) -> None:
    assert format_time(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "0.25 s"),
        (59.0, "59 s"),
        (61.4, "1:01 min"),
        (3599.6, "1:00:00 h"),
        (7384, "2:03:04 h"),
    ],
)
def test_wall_times_are_read_like_a_clock(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
