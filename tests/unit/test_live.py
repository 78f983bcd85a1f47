"""A live session without a browser: commands between steps, and a schedule that replays to the bit."""

from __future__ import annotations

import json
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tetris_sim.api.live import Session, Viewer, knobs
from tetris_sim.api.steering import Schedule, SteeredRun, ball, read_schedule, replay
from tetris_sim.config import make_config
from tetris_sim.errors import CheckpointError, UnstableStepError
from tetris_sim.simulation.resuming import newest_checkpoint

REACTING: dict[str, Any] = {
    "grid": {"shape": [24, 20], "spacing": [1, 1]},
    "model": {
        "type": "pde",
        "constants": {"Du": 0.16, "Dv": 0.08, "F": 0.0545, "k": 0.062},
        "fields": {
            "u": {
                "equation": "Du*laplace(u) - u*v**2 + F*(1 - u)",
                "initial": {"type": "constant", "value": 1},
            },
            "v": {
                "equation": "Dv*laplace(v) + u*v**2 - (F + k)*v",
                "initial": {"type": "constant", "value": 0},
            },
        },
    },
    "boundaries": {"*": {"type": "periodic"}},
    "time": {"dt": 1, "steps": 400},
    "compute": {"devices": "cpu", "tuning_budget": 0, "threads": 1},
    "output": {"probes": [{"name": "middle", "at": [12, 10], "every": "100 steps"}]},
}
MELTING: dict[str, Any] = {
    "grid": {"shape": [12, 9], "size": ["12 mm", "9 mm"]},
    "model": {
        "type": "heat",
        "materials": {
            "ice": {
                "conductivity": 2.2,
                "density": 917,
                "specific_heat": 2100,
                "latent_heat": 334000,
                "solidus": -0.5,
                "liquidus": 0.5,
            }
        },
        "regions": [{"material": "ice"}],
        "sources": [{"name": "wire", "power": "20 W/m"}],
    },
    "initial": {"type": "constant", "value": -0.2},
    "boundaries": {"*": {"type": "robin", "h": 40, "ambient": 30}},
    "time": {"dt": "20 ms", "steps": 300},
    "compute": {"devices": "cpu", "tuning_budget": 0, "threads": 1},
}
IMPLICIT: dict[str, Any] = {
    **{key: MELTING[key] for key in ("grid", "initial", "boundaries", "compute")},
    "model": {"type": "heat", "material": "copper"},
    "time": {"scheme": "implicit", "dt": "1 s", "steps": 40},
}


def configured(data: dict[str, Any], directory: Path, **changes: Any) -> Any:
    output = {**data.get("output", {}), "directory": str(directory), **changes}
    return make_config({**data, "output": output}, environ={})


def last_state(directory: Path) -> np.ndarray[Any, Any]:
    import h5py

    with h5py.File(newest_checkpoint(directory)) as file:
        return np.array([field[()] for field in file["fields"].values() if field.ndim > 1])


class Seeing(Viewer):
    """A viewer that keeps what it is told, and the head and the values of the newest picture."""

    def __init__(self, session: Session) -> None:
        super().__init__(lambda: None)
        self.session, self.told = session, list[dict[str, Any]]()
        self._left: list[dict[str, Any]] = []  # a picture that came with what was waited for
        session.ask(self, {"do": "join"})

    def ask(self, do: str, **rest: Any) -> None:
        self.session.ask(self, {"do": do, **rest})

    def until(self, holds: Callable[[dict[str, Any]], bool], seconds: float = 60) -> dict[str, Any]:
        """Wait for a note, or the head of a picture with its values."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            new = [json.loads(note) for note in self.take_notes()]
            self.told += new
            new += self._left
            self._left = []
            if (frame := self.take()) is not None:
                (length,) = struct.unpack("<I", frame[:4])
                head = json.loads(frame[4 : 4 + length])
                values = np.frombuffer(frame, "<f4", offset=4 + length).reshape(head["shape"])
                new.append({"note": "frame", **head, "values": values})
            if found := [it for it in new if holds(it)]:
                self._left = [it for it in new if it["note"] == "frame" and not holds(it)]
                return dict(found[-1])
            time.sleep(0.002)
        raise AssertionError(self.told)

    def note(self, kind: str) -> dict[str, Any]:
        return self.until(lambda it: it["note"] == kind)

    def at_step(self, step: int) -> dict[str, Any]:
        return self.until(lambda it: it["note"] == "frame" and it["step"] == step)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Seeing]]:
    """Opens a session in a thread of its own; ended after the test, whose thread must have ended."""
    running: list[tuple[Session, threading.Thread]] = []

    def begin(config: Any, **options: Any) -> Seeing:
        session = Session(config, **options)
        thread = threading.Thread(target=session.run, daemon=True)
        running.append((session, thread))
        viewer = Seeing(session)
        thread.start()
        return viewer

    yield begin
    for session, thread in running:
        session.ask(None, {"do": "end"})
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("data", [REACTING, MELTING, IMPLICIT], ids=["pde", "melting", "implicit"])
def test_a_schedule_replays_to_the_same_bits(data: dict[str, Any], tmp_path: Path) -> None:
    field, key, value = (
        ("v", ["model", "constants", "F"], 0.03)
        if data is REACTING
        else ("temperature", ["boundaries", "*", "ambient"], 80.0)
    )
    at = {"x": 5.0, "y": 6.0} if data is REACTING else {"x": 5e-3, "y": 4e-3}
    steps = 40 if data is IMPLICIT else 300
    config = configured(data, tmp_path / "seen", pictures=False)
    session = Session(config, once=True, paused=True)
    viewer = Seeing(session)
    thread = threading.Thread(target=session.run, daemon=True)
    thread.start()
    viewer.ask("step", steps=7)
    viewer.at_step(7)
    stroke = {"field": field, "at": at, "radius": at["x"] / 2, "value": 0.5}
    viewer.ask("paint", stroke=stroke)
    viewer.ask("step", steps=5)
    viewer.at_step(12)
    viewer.ask("set", key=key, value=value)
    assert value in [it["value"] for it in viewer.note("knobs")["knobs"]]
    viewer.ask("go")
    thread.join(100)
    assert not [it for it in viewer.told if it["note"] == "refused"]

    _, lines = read_schedule(tmp_path / "seen" / "live.jsonl")
    assert [it["step"] for it in lines] == [7, 12, data["time"]["steps"]]
    assert steps <= data["time"]["steps"]
    replay(tmp_path / "seen", tmp_path / "again")
    seen, again = last_state(tmp_path / "seen"), last_state(tmp_path / "again")
    assert np.array_equal(seen, again)
    # The changes matter: without them the state is another one.
    text = (tmp_path / "seen" / "live.jsonl").read_text().splitlines(keepends=True)
    bare = tmp_path / "bare.jsonl"
    bare.write_text(text[0])
    replay(bare, tmp_path / "bare")
    assert not np.array_equal(seen, last_state(tmp_path / "bare"))


def test_a_change_is_the_same_as_a_run_that_goes_on_with_other_values(tmp_path: Path) -> None:
    import tetris_sim as ts

    config = configured(MELTING, tmp_path / "steered", pictures=False)
    with SteeredRun(config) as run:
        run.advance_to(60)
        run.change([(("model", "sources", 0, "power"), 90.0)])
        assert run.simulation.step == 60
        run.advance_to(200)
        found = run.simulation.field()
    with ts.simulate(MELTING) as simulation:
        simulation.advance(60)
        with simulation.with_changes({"model.sources.0.power": 90.0}) as other:
            other.advance(140)
            assert np.array_equal(found, other.field())


def test_pause_step_limit_checkpoint_and_restart(
    opened: Callable[..., Seeing], tmp_path: Path
) -> None:
    viewer = opened(configured(REACTING, tmp_path / "run", pictures=False), paused=True)
    hello = viewer.note("hello")
    assert [it["name"] for it in hello["fields"]] == ["u", "v"]
    assert hello["curves"]["names"][:2] == ["middle u", "middle v"]
    time.sleep(0.2)
    assert viewer.at_step(0)["ended"] is False  # it has waited
    viewer.ask("step", steps=3)
    viewer.at_step(3)
    viewer.ask("save")
    assert viewer.note("saved")["step"] == 3
    assert newest_checkpoint(tmp_path / "run").name == "checkpoint_000000000003.h5"
    viewer.ask("limit", rate=40)
    begun = time.monotonic()
    viewer.ask("go")
    viewer.until(lambda it: it["note"] == "frame" and it["step"] >= 33)
    assert time.monotonic() - begun > 0.5  # 30 steps at 40 per second
    viewer.ask("limit", rate=None)
    viewer.until(lambda it: it["note"] == "frame" and it["ended"])
    viewer.ask("pause")
    viewer.ask("restart")
    assert viewer.at_step(0)["ended"] is False
    assert len(read_schedule(tmp_path / "run" / "live.jsonl")[1]) == 0


def test_a_view_shows_the_values_of_its_cut(opened: Callable[..., Seeing], tmp_path: Path) -> None:
    data = {
        "grid": {"shape": [7, 6, 5], "size": [7, 6, 5]},
        "model": {"type": "heat", "material": "copper"},
        "initial": {"type": "expression", "expression": "x + 10*y + 100*z"},
        "boundaries": {"*": {"type": "insulated"}},
        "time": {"steps": 3},
        "compute": {"devices": "cpu", "tuning_budget": 0, "threads": 1},
    }
    viewer = opened(configured(data, tmp_path / "run", pictures=False), paused=True)
    viewer.note("hello")
    viewer.ask("view", field=0, axis=1, at=0.4, most=64)  # rows of y: 2.5 of 6
    frame = viewer.until(lambda it: it["note"] == "frame" and it["place"][0] == "y")
    assert frame["axes"] == ["z", "x"]
    assert frame["place"][1] == 2.5
    z, x = np.arange(5) + 0.5, np.arange(7) + 0.5
    wanted = x[None, :] + 25 + 100 * z[:, None]
    assert np.array_equal(frame["values"], wanted.astype("<f4"))
    viewer.ask("view", field=0, axis=1, at=0.4, most=3)
    assert viewer.until(lambda it: it["note"] == "frame" and it["shape"][0] < 5)["shape"] == [3, 3]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ({"do": "set", "key": ["grid", "shape"], "value": [3, 3]}, "grid is fixed"),
        ({"do": "set", "key": ["model", "constants", "F"], "value": "F +"}, "F"),
        ({"do": "set", "key": "model", "value": 3}, "a list of its parts"),
        ({"do": "set", "key": ["model", "constants", "k"], "value": float("nan")}, "finite"),
        ({"do": "paint", "stroke": {"field": "w", "at": {"x": 1, "y": 1}, "radius": 3, "value": 1}},
         "'w'"),
        ({"do": "paint", "stroke": {"field": "v", "at": {"x": 1}, "radius": 3, "value": 1}}, "'y'"),
        ({"do": "paint", "stroke": {"field": "v", "at": {"x": 1, "y": 1}, "radius": 0.1,
          "value": 1}}, "no cell"),
        ({"do": "paint", "stroke": {"field": "v", "at": {"x": 1, "y": 1}, "radius": 3,
          "value": 1e999}}, "finite"),
        ({"do": "view", "field": 7}, "2 fields"),
        ({"do": "dance"}, "no command"),
        ({}, "no command"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_and_the_run_goes_on(
    command: dict[str, Any], said: str, opened: Callable[..., Seeing], tmp_path: Path
) -> None:
    viewer = opened(configured(REACTING, tmp_path / "run", pictures=False), paused=True)
    viewer.ask("step", steps=2)
    viewer.at_step(2)
    viewer.session.ask(viewer, command)
    assert said in viewer.note("refused")["text"]
    viewer.ask("step", steps=1)
    viewer.at_step(3)
    assert read_schedule(tmp_path / "run" / "live.jsonl")[1] == []


def test_an_unstable_value_is_refused_and_the_run_stays_as_it_was(tmp_path: Path) -> None:
    data = {**MELTING, "model": {"type": "heat", "material": "copper"}, "time": {"steps": 50}}
    with SteeredRun(configured(data, tmp_path / "run", pictures=False)) as run:
        run.advance_to(20)
        before = run.simulation.field()
        with pytest.raises(UnstableStepError, match="largest stable step"):
            run.change([(("model", "material"), "silver"), (("boundaries", "*", "h"), 1e7)])
        assert np.array_equal(before, run.simulation.field())
        assert run.advance_to(50) is None


def test_a_run_that_fails_can_be_begun_again(opened: Callable[..., Seeing], tmp_path: Path) -> None:
    data = {
        **REACTING,
        "model": {
            "type": "pde",
            "constants": {"a": 0.0},
            "fields": {
                "u": {
                    "equation": "0.1*laplace(u) + a*u**2",
                    "initial": {"type": "constant", "value": 1},
                }
            },
        },
        "output": {},
    }
    viewer = opened(configured(data, tmp_path / "run", pictures=False), paused=True)
    viewer.note("hello")
    viewer.ask("set", key=["model", "constants", "a"], value=1e200)
    viewer.note("knobs")
    viewer.ask("go")
    assert "not finite" in viewer.note("failed")["text"]
    viewer.ask("set", key=["model", "constants", "a"], value=0.0)
    viewer.ask("restart")
    viewer.until(lambda it: it["note"] == "frame" and it["ended"])


def test_knobs_are_numbers_and_formulas_that_kernels_take(tmp_path: Path) -> None:
    config = configured(MELTING, tmp_path / "run")
    keys = {".".join(map(str, it["key"])): it["value"] for it in knobs(config)}
    assert keys["boundaries.*.h"] == 40
    assert keys["model.sources.0.power"] == 20
    assert not [it for it in keys if it.startswith(("grid", "initial", "time"))]


def test_a_ball_has_the_cells_whose_centres_are_in_it(tmp_path: Path) -> None:
    grid = configured(REACTING, tmp_path / "run").build().grid
    found = ball(grid, [10.0, 12.0], 2.0)
    y, x = np.meshgrid(np.arange(20) + 0.5, np.arange(24) + 0.5, indexing="ij")
    assert np.array_equal(found, (x - 12) ** 2 + (y - 10) ** 2 <= 4)


def test_what_is_no_schedule_is_told(tmp_path: Path) -> None:
    for text in ("", "{}\n", "[1]\n", '{"schedule": 99}\n', "nonsense\n"):
        (tmp_path / "live.jsonl").write_text(text)
        with pytest.raises(CheckpointError, match=r"live\.jsonl is"):
            replay(tmp_path)
    with pytest.raises(CheckpointError, match="no schedule"):
        replay(tmp_path / "nowhere")


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    with SteeredRun(configured(REACTING, tmp_path / "run", pictures=False)) as run:
        schedule = Schedule(run, None)
        schedule.note(3, paint={})
    path = tmp_path / "run" / "live.jsonl"
    path.write_text(path.read_text() + '{"step": 9, "se')
    assert read_schedule(path)[1] == [{"step": 3, "paint": {}}]
