"""What people read beside a run: intervals in fitting units, and bars that a notebook can show."""

from __future__ import annotations

from typing import Any

import pytest

from tetris_sim.api.sweeping import _bar
from tetris_sim.commands.validate import _pace
from tetris_sim.config.sections.quantities import Every


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (40 * 86400.0, "s", "40 days"),
        (43200.0, "s", "12:00:00 h"),
        (0.005, "s", "0.005 s"),
        (1800.0, "wall", "30:00 min wall"),
        (500, "steps", "500 steps"),
    ],
)
def test_validate_tells_intervals_as_people_do(value: float, unit: Any, text: str) -> None:
    assert _pace(Every(value, unit)) == text


def test_the_bar_of_a_sweep_is_a_widget_where_there_are_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[Any] = []

    class Widget:
        def __init__(self, **said: Any) -> None:
            shown.append((said["total"], said["initial"]))

        def set_postfix_str(self, name: str, refresh: bool) -> None:
            shown.append(name)

        def update(self) -> None:
            shown.append("update")

        def close(self) -> None:
            shown.append("close")

    monkeypatch.setattr("tqdm.auto.tqdm", Widget)
    show = _bar(3, 2, wanted=True)
    show("h 50")
    show("")
    assert shown == [(3, 1), "h 50", "update", "close"]
