"""time.scheme: steady through a whole run: plan, outputs, report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetris_sim
from tests.support.body_samples import heat_model, settings, settle
from tetris_sim.__main__ import main
from tetris_sim.config import make_config
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.outputs.series import open_fields
from tetris_sim.simulation.launch import launch
from tetris_sim.simulation.report import Report, pace_of

BODY: dict[str, Any] = {
    "grid": {"shape": [20, 10], "size": [0.2, 0.1]},
    "model": heat_model(
        {"material": "glass"},
        {"material": "copper", "box": {"x": [0.05, 0.1]}},
        sources=[{"power": 30.0, "material": "copper"}],
    ),
    "boundaries": {
        "x-": {"type": "dirichlet", "value": 5},
        "x+": {"type": "robin", "h": 8, "ambient": 20},
        "*": {"type": "neumann"},
    },
    "compute": {"threads": 2},
}
STEADY = {"scheme": "steady", "tolerance": 1e-10}


def outputs(directory: Path, **more: Any) -> dict[str, Any]:
    every = {"every": "1 step"}
    return {"directory": str(directory), "fields": every, "statistics": every, **more}


def test_a_steady_run_writes_the_answer_once_and_heat_balances(tmp_path: Path) -> None:
    sections = settings(**BODY | {"time": STEADY, "output": outputs(tmp_path / "run")})
    report = launch(make_config(sections))
    assert report.scheme == "steady"
    assert "iterations" in report.notes[0]
    assert report.as_text().startswith("Done: steady state of 200 points")

    with open_fields(tmp_path / "run" / "fields.h5") as series:
        assert series.times == (0.0,)
        found = series.read(0, 0, ((0, 10), (0, 20)))
    stepping = make_config(settings(**BODY)).build()
    np.testing.assert_allclose(found, settle(stepping), atol=1e-7)
    flows = [value for name, value in report.heat.items() if name.startswith("heat flow x")]
    assert not any("stored" in name for name in report.heat)
    assert sum(flows) + 30 == pytest.approx(0, abs=1e-7)
    assert json.loads((tmp_path / "run" / "report.json").read_text())["scheme"] == "steady"


@pytest.mark.parametrize(
    ("time", "wanted", "text"),
    [
        (STEADY, "", "steady state of 200 points"),
        ({"scheme": "implicit", "dt": 2.0, "steps": 3}, "3 steps in ", "3 steps in "),
        ({"steps": 3}, "GStencil/s", "GStencil/s while computing"),
    ],
)
def test_rates_are_told_only_where_every_step_is_a_sweep(
    tmp_path: Path, time: dict[str, Any], wanted: str, text: str
) -> None:
    """An implicit step is no sweep, and a steady state has neither steps nor a time."""
    config = make_config(settings(**BODY | {"time": time, "output": outputs(tmp_path / "run")}))
    result = tetris_sim.run(config)
    said = pace_of(result.report.as_json())
    assert (wanted in said) if wanted else (said == "")
    page = result._repr_html_()
    for shown in (result.report.as_text(), page):
        assert ("GStencil/s" in shown) == (wanted == "GStencil/s")
    assert text in result.report.as_text()
    assert ("step 1" in page) is False
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")]) == 0
    tiles = (tmp_path / "page.html").read_text().partition('<dl class="tiles">')[2]
    tiles = tiles.partition("</dl>")[0]
    assert ("<dt>steps</dt>" in tiles) == (time is not STEADY)
    assert ("GStencil/s" in tiles) == (wanted == "GStencil/s")


def test_an_implicit_run_goes_on_where_it_was(tmp_path: Path) -> None:
    time = {"scheme": "implicit", "dt": 2.0, "steps": 6}
    every = {"every": "2 steps"}

    def run(name: str, steps: int, **options: Any) -> Report:
        output = {"directory": str(tmp_path / name), "fields": every, "statistics": every}
        sections = settings(**BODY | {"time": time | {"steps": steps}, "output": output})
        return launch(make_config(sections), **options)

    whole = run("whole", 6)
    run("parts", 3)
    report = run("parts", 6, resume="auto")
    assert report.first_step == 3
    assert "iterations each" in report.notes[0]
    with (
        open_fields(tmp_path / "whole" / "fields.h5") as one,
        open_fields(tmp_path / "parts" / "fields.h5") as other,
    ):
        assert one.times == (0.0, 4.0, 8.0, 12.0)
        np.testing.assert_array_equal(
            one.read(3, 0, ((0, 10), (0, 20))),
            other.read(len(other.times) - 1, 0, ((0, 10), (0, 20))),
        )
    assert whole.heat["heat stored [J/m]"] > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"time": {"scheme": "implicit", "steps": 3}}, "give dt as a number"),
        ({"time": {"scheme": "steady", "t_end": 3}}, "t_end is given, but scheme: steady"),
        ({"time": STEADY, "output": {"fields": {"at": [1]}}}, "a steady state is of no time"),
        (
            {"time": STEADY, "model": {"type": "stencil", "stencil": "heat-1d"}},
            "a bare stencil is none",
        ),
    ],
)
def test_what_a_steady_state_has_not_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make_config(settings(**change)).build()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"boundaries": {"*": {"type": "dirichlet", "value": "t"}}}, "change with time"),
        ({"boundaries": {"*": {"type": "dirichlet", "value": "x*t"}}}, "change with time"),
        ({"compute": {"method": "cpu.plain"}}, "cpu.plain was asked for"),
        ({"compute": {"devices": ["simulated:0"]}}, "simulated:0 was asked for"),
    ],
)
def test_a_plan_says_why_it_cannot_solve(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    sections = settings(**BODY | {"time": STEADY, "output": outputs(tmp_path)} | change)
    with pytest.raises(UnsupportedError, match=words):
        launch(make_config(sections))


def test_heat_that_flowed_in_implicit_steps_is_of_second_order(tmp_path: Path) -> None:
    left = []
    for steps in (8, 16):
        every = {"every": "1 step"}
        output = {"directory": str(tmp_path / str(steps)), "statistics": every}
        time = {"scheme": "implicit", "dt": 40 / steps, "steps": steps, "tolerance": 1e-12}
        faces = {"x-": {"type": "robin", "h": "100 + 2*t", "ambient": 50}, "*": {"type": "neumann"}}
        faces["x+"] = {"type": "neumann", "flux": "1000 + 50*t"}
        model = BODY["model"] | {"sources": [{"density": "1e4*(1 + t/10)"}]}
        sections = BODY | {"time": time, "output": output, "boundaries": faces, "model": model}
        heat = launch(make_config(settings(**sections))).heat
        stored = next(it for name, it in heat.items() if name.startswith("heat stored"))
        rest = next(it for name, it in heat.items() if name.startswith("heat residual"))
        left.append(abs(rest / stored))
    assert left[0] < 1e-3
    assert left[1] < left[0] / 2.8 or left[1] < 1e-9


@pytest.mark.parametrize("melts", [False, True])
@pytest.mark.filterwarnings("error")
def test_what_touches_a_fluid_on_a_ring_is_not_called_insulated(
    melts: bool, tmp_path: Path
) -> None:
    copper = {"material": "copper", **({"latent_heat": 2e5, "solidus": 500} if melts else {})}
    sections = {
        "grid": {"shape": [12, 8], "size": [12e-3, 8e-3]},
        "model": {
            "type": "heat",
            "materials": {"copper": copper},
            "regions": [
                {"material": "copper"},
                {"name": "air", "fluid": {"ambient": 5, "h": 100}, "box": {"x": [0, 3e-3]}},
            ],
            "sources": [{"material": "copper", "power": 8}],
        },
        "boundaries": {"x": {"type": "neumann"}, "y": {"type": "periodic"}},
        "initial": {"type": "constant", "value": 20},
        "time": {"scheme": "steady"},
        "output": {"directory": str(tmp_path)},
    }
    report = launch(make_config(sections))
    assert not [note for note in report.notes if "insulated" in note]


def test_a_steady_state_is_called_so_and_no_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = outputs(tmp_path / "run")
    tetris_sim.run(make_config(settings(**BODY | {"time": STEADY, "output": output})))
    capsys.readouterr()
    assert main(["info", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "steady state" in shown
    for word in ("step 1", "time step", "t = 0 s"):
        assert word not in shown
    assert main(["plot", str(tmp_path / "run"), "-o", str(tmp_path / "plot.png")]) == 0
    assert "temperature, steady state" in capsys.readouterr().out
