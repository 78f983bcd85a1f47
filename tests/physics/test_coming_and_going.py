"""Regions that come and go: layers that are laid down, parts that are taken away."""

from __future__ import annotations

import csv
import itertools
import math
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import solve_ivp

import tetris_sim as ts
from tests.support.thread_ranks import run_ranks
from tetris_sim.commands import sources
from tetris_sim.config import make_config
from tetris_sim.errors import CheckpointError, ConfigError
from tetris_sim.model.adjoint import why_not_transposed
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.series import open_fields
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.simulation.launch import launch

Numbers = npt.NDArray[np.float64]
LENGTH, JOINED, END = 0.04, 4.0, 10.0
STEEL = {"conductivity": 50, "density": 8000, "specific_heat": 500}
QUICK = {"devices": "cpu", "method": "cpu.plain", "threads": 1}
SOLVED = {"devices": "cpu", "threads": 1}

JOINT: dict[str, Any] = {
    "grid": {"shape": [40], "size": [LENGTH]},
    "model": {
        "type": "heat",
        "materials": {"steel": STEEL},
        "regions": [
            {"void": True},
            {"material": "steel", "box": {"x": [0, LENGTH / 2]}},
            {
                "name": "layer",
                "material": "steel",
                "box": {"x": [LENGTH / 2, LENGTH]},
                "from": JOINED,
                "arrives_at": 900,
            },
        ],
    },
    "initial": {"type": "expression", "expression": f"300 + 200*cos(2*pi*x/{LENGTH})"},
    "boundaries": {"*": {"type": "neumann"}},
    "time": {"t_end": END},
    "compute": QUICK,
}
# Beads on a plate in air, one of which is taken away again.
BEADS: dict[str, Any] = {
    "grid": {"shape": [16, 12], "size": ["16 mm", "12 mm"]},
    "model": {
        "type": "heat",
        "materials": {"steel": STEEL, "braze": {**STEEL, "conductivity": 90}},
        "regions": [
            {"name": "air", "fluid": {"ambient": 15, "h": 300}},
            {"material": "steel", "box": {"y": [0, "4 mm"]}},
            {
                "name": "first",
                "material": "braze",
                "box": {"x": ["2 mm", "8 mm"], "y": ["4 mm", "7 mm"]},
                "from": "1 s",
                "to": "4 s",
                "arrives_at": 1200,
            },
            {
                "name": "second",
                "material": "steel",
                "box": {"x": ["8 mm", "14 mm"], "y": ["4 mm", "8 mm"]},
                "from": "2.5 s",
                "arrives_at": 800,
            },
        ],
        "contacts": [{"between": ["steel", "braze"], "resistance": 1e-4}],
        "sources": [{"region": "second", "power": 500}, {"density": "1e5*(1+100*x)"}],
    },
    "initial": {"type": "constant", "value": 20},
    "boundaries": {"*": {"type": "neumann"}, "y-": {"type": "robin", "h": 800, "ambient": 10}},
    "time": {"t_end": "6 s"},
    "compute": QUICK,
}


def _changed(config: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {**config, **{name: {**config.get(name, {}), **it} for name, it in sections.items()}}


def _melting() -> dict[str, Any]:
    melts = {**STEEL, "latent_heat": 2.5e5, "solidus": 600, "liquidus": 640}
    model = BEADS["model"]
    return _changed(BEADS, model={"materials": {**model["materials"], "steel": melts}})


def _graded() -> dict[str, Any]:
    edges = [0, 0.001, 0.002, 0.004, 0.005, 0.007, 0.008, 0.012]
    return _changed(BEADS, grid={"shape": [16, 7], "graded": {"y": {"edges": edges}}})


def _cut() -> dict[str, Any]:
    plate, first = BEADS["model"]["regions"][1:3]
    slanted = {**first, "box": None, "where": "hypot(x - 5.2e-3, y - 4e-3) < 3.1e-3"}
    regions = [BEADS["model"]["regions"][0], slanted, plate, BEADS["model"]["regions"][3]]
    return _changed(BEADS, model={"regions": regions})


def _in_void() -> dict[str, Any]:
    regions = [{"name": "air", "void": True}, *BEADS["model"]["regions"][1:]]
    return _changed(BEADS, model={"regions": regions})


IMPLICIT = {"scheme": "implicit", "dt": "0.05 s"}
BODIES = {
    "air": BEADS,
    "void": _in_void(),
    "melting": _melting(),
    "graded": _graded(),
    "cut": _cut(),
    "implicit": {**_changed(BEADS, time=IMPLICIT), "compute": SOLVED},
    "implicit, melting": {**_changed(_melting(), time=IMPLICIT), "compute": SOLVED},
    "beam": _changed(
        _in_void(),
        model={
            "sources": [
                {
                    "type": "beam",
                    "face": "y-",
                    "d4sigma": "3 mm",
                    "power": 100,
                    "path": {"x": "2e-3*t"},
                }
            ]
        },
    ),
}


def _joined(x: Numbers, time: float) -> Numbers:
    """The series of both halves after they were joined."""
    a = STEEL["conductivity"] / STEEL["density"] / STEEL["specific_heat"]
    half = (np.arange(4000) + 0.5) / 4000 * LENGTH / 2
    base = 300 + 200 * np.cos(2 * np.pi * half / LENGTH) * math.exp(
        -a * (2 * np.pi / LENGTH) ** 2 * JOINED
    )
    both, at = (
        np.concatenate([base, np.full(4000, 900.0)]),
        np.concatenate([half, half + LENGTH / 2]),
    )
    found = np.full(x.shape, both.mean())
    for n in range(1, 200):
        k = n * np.pi / LENGTH
        amplitude = 2 * (both * np.cos(k * at)).mean()
        found += amplitude * np.cos(k * x) * math.exp(-a * k**2 * (time - JOINED))
    return found


@pytest.mark.parametrize("scheme", [{}, {"scheme": "implicit", "dt": "0.02 s"}], ids=["e", "i"])
def test_two_halves_that_are_joined_follow_their_series(scheme: dict[str, Any]) -> None:
    errors = []
    for n in (40, 80):
        config = _changed(JOINT, grid={"shape": [n]}, time=scheme)
        config = {**config, "compute": SOLVED if scheme else QUICK}
        with ts.simulate(config) as simulation:
            simulation.run(JOINED)
            assert simulation.field()[0, -1] == 900  # it is there from that step on
            simulation.run()
            found = simulation.field()[0]
        x = (np.arange(n) + 0.5) * LENGTH / n
        errors.append(float(np.abs(found - _joined(x, END)).max()))
    assert errors[0] < 0.5
    assert errors[1] < 0.3 * errors[0]  # of second order


def test_steps_end_when_something_comes_or_goes() -> None:
    problem = make_config(BEADS, environ={}).build()
    assert [problem.time(step) for step in problem.changes] == pytest.approx([1, 2.5, 4], abs=1e-12)
    assert problem.dt <= problem.dt_limit
    # The step is the smallest of all parts of the run: braze conducts best.
    assert problem.dt_limit < make_config(JOINT, environ={}).build().dt_limit


def _table(directory: Path) -> dict[str, Numbers]:
    with (directory / "statistics.csv").open() as file:
        header, *rows = csv.reader(file)
    return dict(zip(header, np.array(rows, np.float64).T, strict=True))


@pytest.mark.parametrize("name", list(BODIES))
def test_what_comes_and_goes_is_in_the_balance(name: str, tmp_path: Path) -> None:
    config = _changed(BODIES[name], output={"statistics": {"every": "0.5 s"}, "pictures": False})
    ts.run(_changed(config, output={**config["output"], "directory": str(tmp_path)}))
    table = _table(tmp_path)
    arrived, gone = table["heat arrived [J/m]"], table["heat gone [J/m]"]
    assert arrived[0] == gone[0] == 0
    assert arrived[-1] > 1e4
    assert gone[-1] > 1e3
    assert abs(table["heat residual [J/m]"]).max() < 1e-7 * arrived[-1]
    # A record is made whenever the body changes.
    assert {1.0, 2.5, 4.0} <= {round(float(it), 9) for it in table["time [s]"]}

    first = [key for key in table if key.startswith("braze ") and "mean" in key]
    there = ~np.isnan(table[first[0]])
    time = np.round(table["time [s]"], 9)
    np.testing.assert_array_equal(there, (time >= 1) & (time < 4))


def test_what_is_not_there_is_nan_in_files_and_blank_in_pictures(tmp_path: Path) -> None:
    output = {"directory": str(tmp_path), "fields": {"every": "0.5 s"}, "pictures": True}
    for name in ("air", "void"):
        ts.run({**BODIES[name], "output": output}, overwrite=True)
        with h5py.File(tmp_path / "fields.h5") as file:
            field, times = np.asarray(file["temperature"]), np.asarray(file["time"])
        bead = field[:, 5, 4]
        there = (times > 0.99) & (times < 3.99)
        assert (np.isnan(bead) == (~there if name == "void" else False)).all()
        assert bead[2] == 1200

        with open_fields(tmp_path / "fields.h5") as series:
            for record, present in enumerate(there):
                (material,) = (it for it in series.maps_at(record) if it.name == "material")
                number = int(material.read(((5, 6), (4, 5))).item())
                assert (number in material.outside) == (not present)


@pytest.mark.parametrize("name", ["air", "melting", "implicit"])
def test_a_run_continued_before_at_and_after_a_change_has_the_same_bits(
    name: str, tmp_path: Path
) -> None:
    outputs = {"fields": {"every": "0.5 s"}, "statistics": {"every": "0.5 s"}, "pictures": False}
    # Of what conducts badly steps are few, and each of them can be saved.
    slow = {
        key: {**it, "conductivity": 4} for key, it in BODIES[name]["model"]["materials"].items()
    }
    body = _changed(BODIES[name], model={"materials": slow})
    steps = make_config(body, environ={}).build().changes
    config = {**body, "output": outputs, "checkpoint": {"every": "1 step", "keep": 1000}}

    def asked(directory: Path) -> Any:
        return make_config(
            {**config, "output": {**outputs, "directory": str(directory)}}, environ={}
        )

    launch(asked(tmp_path / "whole"))
    for step in (steps[0] - 1, steps[0], steps[1] + 1, steps[2]):
        folder = tmp_path / f"part{step}"
        shutil.copytree(tmp_path / "whole", folder)
        for path in (folder / "checkpoints").glob("*.h5"):
            if int(path.stem.split("_")[1]) > step:
                path.unlink()
        launch(asked(folder), resume="auto")
        tables = [it / "statistics.csv" for it in (folder, tmp_path / "whole")]
        assert tables[0].read_text() == tables[1].read_text()
        with h5py.File(folder / "fields.h5") as one, h5py.File(tmp_path / "whole/fields.h5") as two:
            np.testing.assert_array_equal(one["temperature"], two["temperature"])
        assert {it.name for it in (folder / "fields").iterdir()} >= {
            it.name for it in (tmp_path / "whole/fields").glob("fields_*")
        }


def test_every_exact_method_has_the_same_bits() -> None:
    states = []
    for compute in (QUICK, {**QUICK, "method": "cpu.tessellate", "threads": 2}):
        with ts.simulate({**BODIES["air"], "compute": compute}) as simulation:
            simulation.run()
            states.append(np.array(simulation.field()))
    np.testing.assert_array_equal(states[0], states[1])


@pytest.mark.parametrize("name", ["air", "implicit"])
def test_ranks_agree(name: str, tmp_path: Path) -> None:
    outputs = {"fields": {"every": "1 s"}, "statistics": {"every": "0.5 s"}, "pictures": False}

    def asked(directory: str) -> Any:
        output = {**outputs, "directory": str(tmp_path / directory)}
        return make_config({**BODIES[name], "output": output}, environ={})

    def work(ranks: Communicator) -> None:
        launch(asked("two"), ranks=ranks)

    launch(asked("one"))
    run_ranks(2, work)
    with h5py.File(tmp_path / "one/fields.h5") as one, h5py.File(tmp_path / "two/fields.h5") as two:
        np.testing.assert_array_equal(one["temperature"], two["temperature"])
    tables = [_table(tmp_path / it) for it in ("one", "two")]
    assert {*tables[0]} == {*tables[1]}
    for key, values in tables[0].items():
        np.testing.assert_array_equal(values, tables[1][key], err_msg=key)


def test_a_checkpoint_shows_the_body_of_its_time(tmp_path: Path) -> None:
    output = {"directory": str(tmp_path), "pictures": False}
    ts.run({**BODIES["air"], "output": output, "checkpoint": {"every": "1 s", "keep": 9}})
    for path in (tmp_path / "checkpoints").glob("*.h5"):
        with sources.open_series(path) as series:
            (material,) = (it for it in series.maps if it.name == "material")
            present = 0.99 < series.times[0] < 3.99
            number = int(material.read(((5, 6), (4, 5))).item())
            assert (number in material.outside) == (not present)


def test_a_simulation_goes_on_with_changes_in_the_same_phase() -> None:
    with ts.simulate(BODIES["air"]) as simulation:
        simulation.run(3.0)
        before = np.array(simulation.field())
        with simulation.with_boundary({"y-": {"type": "insulated"}}) as other:
            np.testing.assert_array_equal(other.field(), before)
            assert other.problem.phase == simulation.problem.phase == 2
            other.run()
            assert other.problem.phase == 3
            assert other.field()[0, 5, 4] == 15  # the air that is left


def test_a_melt_keeps_its_heat_content() -> None:
    # What has half melted when another bead comes stays so.
    with ts.simulate(BODIES["melting"]) as simulation:
        problem = simulation.problem
        simulation.advance(problem.changes[1] - 1)
        simulation.advance(1)
        kept = simulation.problem
        assert kept.phase == 2
        fresh = kept.initial(Slab.whole(kept.grid))
        assert simulation.field()[0, 6, 10] == fresh[0, 6, 10] > 800 * 4e6
        assert simulation.field()[0, 1, 1] != fresh[0, 1, 1]


def _mistakes(**sections: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        make_config(_changed(BEADS, **sections), environ={}).build()
    return str(raised.value)


def _with_region(number: int, **keys: Any) -> dict[str, Any]:
    regions = [dict(it) for it in BEADS["model"]["regions"]]
    regions[number] |= keys
    return {"regions": regions}


def test_what_cannot_be_is_refused() -> None:
    assert "come and go" in _mistakes(time={"scheme": "steady", "t_end": None})
    assert "come and go" in _mistakes(time={"scheme": "spectral"})
    assert "give a later `to`" in _mistakes(model=_with_region(2, **{"from": "4 s"}))
    assert "only a material arrives" in _mistakes(model=_with_region(0, arrives_at=20))
    assert "together with velocity" in _mistakes(model={"velocity": [0.001, 0]})
    assert "covers the centre of no cell" in _mistakes(
        model=_with_region(3, box={"x": ["20 mm", "21 mm"]})
    )
    # A time that no step can end at.
    assert "within a step" in _mistakes(time={"t_end": None, "steps": 1000, "dt": "0.0031 s"})


def test_no_gradient_passes_over_what_comes_and_goes() -> None:
    for config in (BEADS, BURNING):
        problem = make_config(config, environ={}).build()
        assert "come and go" in str(why_not_transposed(problem))


def test_what_is_named_has_to_be_there_at_some_time() -> None:
    regions = BEADS["model"]["regions"]
    never = _mistakes(model={"regions": [*regions[:2], regions[3]]})
    assert "contacts" in never
    # A source of a bead that comes later is none until then.
    problem = make_config(BEADS, environ={}).build()
    assert problem.phases is not None
    assert [problem.phases.make(k).body.source is not None for k in range(4)] == [True] * 4


def test_a_later_end_must_not_move_changes_into_a_step(tmp_path: Path) -> None:
    output = {"directory": str(tmp_path), "pictures": False}
    config = {**BODIES["air"], "output": output, "time": {"t_end": "2 s"}}
    launch(make_config(config, environ={}))
    later = {**config, "time": {"t_end": "6 s"}}
    with pytest.raises((ConfigError, CheckpointError), match="within a step"):
        launch(make_config({**later, "time": {"t_end": "6.123 s"}}, environ={}), resume="auto")


def test_what_comes_and_goes_is_said() -> None:
    config = make_config(BEADS, environ={})
    notes = config.model.notes(config)  # type: ignore[union-attr]
    assert notes[:3] == ("at 1 s first comes", "at 2.5 s second comes", "at 4 s first goes")


# What a tool lays down along its path.

AIR, PLATE = BEADS["model"]["regions"][:2]
LAID: dict[str, Any] = _changed(
    BEADS,
    model={
        "contacts": [],
        "sources": [],
        "regions": [
            AIR,
            PLATE,
            {
                "name": "wall",
                "material": "braze",
                "from": "0.5 s",
                "arrives_at": 1200,
                "bead": {
                    "path": {"x": "2e-3 + 6e-3*(t - 0.5)", "y": "4 mm"},
                    "until": "2.5 s",
                    "every": "0.5 s",
                    "height": "2 mm",
                },
                "repeat": {"count": 2, "shift": [0, "2 mm"], "after": "2.5 s"},
            },
        ],
    },
)


def _boxes() -> dict[str, Any]:
    """The same written out: the tool is nearest to cells at 0.5, 1, ... s."""
    ends = [2, 3.5, 6.5, 9.5, 12.5, 14]
    pieces = [
        {
            "name": "wall",
            "material": "braze",
            "box": {
                "x": [f"{low} mm", f"{high} mm"],
                "y": [f"{4 + 2 * layer} mm", f"{6 + 2 * layer} mm"],
            },
            "from": 0.5 + 0.5 * n + 2.5 * layer,
            "arrives_at": 1200,
        }
        for layer in range(2)
        for n, (low, high) in enumerate(itertools.pairwise(ends))
    ]
    for number, it in enumerate(pieces):
        it["name"] = f"piece {number}"
    return _changed(LAID, model={"regions": [AIR, PLATE, *pieces]})


def _repeated() -> dict[str, Any]:
    first = {**BEADS["model"]["regions"][2], "repeat": {"count": 3, "shift": ["2 mm", "1 mm"]}}
    first["repeat"]["after"] = "0.5 s"
    return _changed(LAID, model={"regions": [AIR, PLATE, first]})


def _state(config: dict[str, Any]) -> Numbers:
    with ts.simulate(config) as simulation:
        simulation.run()
        return np.array(simulation.field())


@pytest.mark.parametrize("time", [{}, IMPLICIT], ids=["explicit", "implicit"])
def test_a_bead_is_what_its_pieces_are(time: dict[str, Any]) -> None:
    cells = {"grid": {"shape": [32, 12], "size": ["16 mm", "12 mm"]}}
    both = [
        {**_changed(it, time=time, **cells), "compute": SOLVED if time else QUICK}
        for it in (LAID, _boxes())
    ]
    assert make_config(both[0], environ={}).build().changes == (
        make_config(both[1], environ={}).build().changes
    )
    np.testing.assert_array_equal(_state(both[0]), _state(both[1]))


def _grown(length: float, speed: float, hot: float, time: float) -> tuple[Numbers, Numbers]:
    """A rod from 0 degC that grows by what arrives hot: places and temperatures, by SciPy on the
    rod stretched to its length of each time.
    """
    k, n = STEEL["conductivity"], 400
    a = k / STEEL["density"] / STEEL["specific_heat"]
    x = (np.arange(n) + 0.5) / n

    def rate(t: float, u: Numbers) -> Numbers:
        now = length + speed * t
        h, g = now / n, speed / a
        # What arrives at the tip is as hot as it, but for what is conducted away.
        tip = (u[-1] + g * hot * h / 2) / (1 + g * h / 2)
        wide = np.concatenate([[-u[0]], u, [2 * tip - u[-1]]])
        spread = a * np.diff(wide, 2) / h**2
        return np.asarray(spread + x * speed * (wide[2:] - wide[:-2]) / (2 * h))

    found = solve_ivp(rate, (0, time), np.zeros(n), method="BDF", rtol=1e-8, atol=1e-6)
    return x * (length + speed * time), found.y[:, -1]


def test_a_growing_rod_is_what_scipy_says() -> None:
    x, exact = _grown(0.01, 0.004, 1000.0, 6.0)
    errors = []
    for n in (80, 160):
        path = {"x": "0.01 + 0.004*t"}
        rod = {"material": "steel", "arrives_at": 1000, "name": "rod"}
        rod["bead"] = {"path": path, "until": 6, "every": 0.04 / n / 0.004}
        base = {"material": "steel", "box": {"x": [0, 0.01]}}
        config = _changed(
            JOINT,
            grid={"shape": [n]},
            model={"regions": [{"void": True}, base, rod]},
            time={"t_end": 6},
            boundaries={"x-": {"type": "dirichlet", "value": 0}},
        )
        state = _state({**config, "initial": {"type": "constant", "value": 0}})[0]
        at = (np.arange(n) + 0.5) * 0.04 / n
        inside = at < 0.0335
        errors.append(float(abs(state[inside] - np.interp(at[inside], x, exact)).max()))
    assert errors[0] < 3
    assert errors[1] < 0.6 * errors[0]


def test_what_is_repeated_is_what_its_copies_are() -> None:
    first = BEADS["model"]["regions"][2]
    copies = [
        {
            **first,
            "name": f"copy {n}",
            "box": {
                "x": [2e-3 + 2e-3 * n, 8e-3 + 2e-3 * n],
                "y": [4e-3 + 1e-3 * n, 7e-3 + 1e-3 * n],
            },
            "from": 1 + 0.5 * n,
            "to": 4 + 0.5 * n,
        }
        for n in range(3)
    ]
    problem = make_config(_repeated(), environ={}).build()
    assert [problem.time(it) for it in problem.changes] == pytest.approx([1, 1.5, 2, 4, 4.5, 5])
    one = make_config(_changed(LAID, model={"regions": [AIR, PLATE, *copies]}), environ={}).build()
    assert problem.phases
    assert one.phases
    whole = tuple((0, n) for n in problem.grid.shape)
    for phase in range(7):
        both = problem.phases.make(phase), one.phases.make(phase)
        found, wanted = (it.body.medium for it in both)
        names = [np.array(it.names)[it.ids(whole)] for it in (found, wanted)]
        np.testing.assert_array_equal(*names)


@pytest.mark.parametrize("scheme", ["explicit", "implicit"])
def test_heat_that_a_tool_brings_is_in_the_balance_on_ranks_too(
    scheme: str, tmp_path: Path
) -> None:
    def asked(directory: str) -> Any:
        output = {"statistics": {"every": "0.5 s"}, "pictures": False, "fields": {"every": "1 s"}}
        output["directory"] = str(tmp_path / directory)
        config = {**LAID, "compute": SOLVED} if scheme == "implicit" else LAID
        time = IMPLICIT if scheme == "implicit" else {}
        return make_config(_changed(config, output=output, time=time), environ={})

    def work(ranks: Communicator) -> None:
        launch(asked("two"), ranks=ranks)

    launch(asked("one"))
    run_ranks(2, work)
    one, two = (_table(tmp_path / it) for it in ("one", "two"))
    for key, values in one.items():
        np.testing.assert_array_equal(values, two[key], err_msg=key)
    arrived = one["heat arrived [J/m]"]
    # As much as the bead holds: 12 mm of 2 mm in two layers.
    assert arrived[-1] == pytest.approx(2 * 0.012 * 0.002 * 4e6 * 1200, rel=1e-9)
    assert abs(one["heat residual [J/m]"]).max() < 1e-7 * arrived[-1]
    assert len({*np.round(arrived, 3)}) == 11  # nothing, and what came with ten pieces


def test_a_run_with_a_bead_continues_with_the_same_bits(tmp_path: Path) -> None:
    config = _changed(LAID, output={"statistics": {"every": "0.5 s"}, "pictures": False})
    config = {**config, "checkpoint": {"every": "0.8 s", "keep": 100}}

    def asked(directory: Path) -> Any:
        return make_config(_changed(config, output={"directory": str(directory)}), environ={})

    launch(asked(tmp_path / "whole"))
    kept = sorted((tmp_path / "whole/checkpoints").glob("*.h5"))
    shutil.copytree(tmp_path / "whole", tmp_path / "part")
    for path in kept[3:]:
        (tmp_path / "part/checkpoints" / path.name).unlink()
    launch(asked(tmp_path / "part"), resume="auto")
    tables = [tmp_path / it / "statistics.csv" for it in ("part", "whole")]
    assert tables[0].read_text() == tables[1].read_text()


def _cells(region: dict[str, Any], size: list[float], time: float) -> npt.NDArray[np.bool_]:
    """Where a region is in cells of 1 mm from a time on."""
    shape = [round(it / 1e-3) for it in size]
    regions = [{"name": "air", "void": True}, {"material": "steel", "name": "own", **region}]
    regions.insert(1, {"material": "steel", "box": {"x": [0, "1 mm"]}})
    config = _changed(BEADS, grid={"shape": shape, "size": size})
    config["model"] = {"type": "heat", "materials": {"steel": STEEL}, "regions": regions}
    config["boundaries"] = {"*": {"type": "neumann"}}
    problem = make_config({**config, "time": {"t_end": 10}}, environ={}).build()
    assert problem.phases
    body = problem.phases.make(problem.phases.at(time, 1e-9)).body
    assert body.medium.regions
    return np.asarray(body.medium.regions.read(tuple((0, n) for n in shape[::-1])) == 2)


def test_a_bead_has_its_section_and_bends_around_corners() -> None:
    turning = {
        "x": {"table": [[1, 0.004], [3, 0.014], [5, 0.014]]},
        "y": {"table": [[1, 0.006], [3, 0.006], [5, 0.016]]},
        "z": 0.002,
    }
    x, y, z = (np.arange(n) * 1e-3 + 0.5e-3 for n in (20, 20, 8))
    z, y, x = np.meshgrid(z, y, x, indexing="ij")
    aside = np.where((x >= 0.004) & (x <= 0.014) & (y < 0.014), abs(y - 0.006), np.inf)
    aside = np.minimum(aside, np.where((y >= 0.006) & (y <= 0.016), abs(x - 0.014), np.inf))
    corner = np.where((x > 0.014) & (y < 0.006), np.hypot(x - 0.014, y - 0.006), np.inf)
    aside = np.minimum(aside, corner) / 0.0033
    for section, height in {
        "rectangle": np.where(aside <= 1, 0.004, 0),
        "ellipse": 0.004 * np.sqrt(np.maximum(1 - aside**2, 0)),
        "parabola": 0.004 * np.maximum(1 - aside**2, 0),
    }.items():
        bead = {"path": turning, "until": 5, "every": 1, "section": section}
        bead |= {"width": 0.0066, "height": 0.004}
        found = _cells({"from": 1, "bead": bead}, [0.02, 0.02, 0.008], 5.0)
        np.testing.assert_array_equal(found, (z > 0.002) & (z - 0.002 < height), err_msg=section)

    # Half-way it is where the tool has been, but for half a piece.
    bead["section"] = "rectangle"
    found = _cells({"from": 1, "bead": bead}, [0.02, 0.02, 0.008], 2.0)
    assert np.flatnonzero(found.any(axis=(0, 1))).tolist() == [4, 5, 6, 7, 8, 9, 10]
    # Without a height it is round, also beside a surface that cuts cells.
    del bead["height"], bead["section"]
    found = _cells(
        {"from": 1, "bead": bead | {"path": {**turning, "z": 0.004}}}, [0.02, 0.02, 0.008], 5
    )
    along = (x > 0.004) & (x < 0.010)
    round_ = np.hypot(y - 0.006, z - 0.004) <= 0.0033
    np.testing.assert_array_equal(found[along], round_[along])


def test_beads_that_cannot_be_are_refused() -> None:
    def told(**keys: Any) -> str:
        bead = {**LAID["model"]["regions"][2]["bead"], **keys.pop("bead", {})}
        region = {**LAID["model"]["regions"][2], "bead": bead, **keys}
        return _mistakes(model={**LAID["model"], "regions": [AIR, PLATE, region]})

    assert "model.regions.2.bead.until: the tool begins at 0.5 s" in told(bead={"until": "0.2 s"})
    assert "give less than that" in told(bead={"every": "3 s"})
    assert "more than 10000 pieces" in told(bead={"every": "1e-5 s"})
    assert "model.regions.2.bead.path.z: the grid has no axis z" in told(bead={"path": {"z": 1}})
    assert "no axis across the path" in told(bead={"width": "1 mm"})
    assert "it needs a width" in told(bead={"height": None})
    assert "has a section" in told(bead={"section": "ellipse"})
    assert "has no finite value at 0.5 s" in told(bead={"path": {"x": "log(t - 1)"}})
    assert "let the tool move over some" in told(bead={"path": {"x": "1 mm", "y": "4 mm"}})
    assert "the bead says where" in told(box={"x": [0, 1]})
    assert "give a later `to`" in told(to="1 s")
    assert "it has 1 numbers" in told(repeat={"count": 2, "shift": [0]})
    assert "repeat: copy 5 covers" in told(repeat={"count": 9, "shift": [0, "2 mm"]})


def test_parts_of_a_run_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from tetris_sim.outputs import audit

    problem = make_config(LAID, environ={}).build()
    assert problem.phases
    assert len(problem.phases.begins) == 11
    # Before the bead, and with some of it: the names of what touches are those of two parts.
    assert sorted({*problem.phases.kinds}) == [0, 1]
    looked = list[int]()
    body = audit.AuditedBody

    def look(problem: Any, **given: Any) -> Any:
        looked.append(problem.phase)
        return body(problem, **given)

    monkeypatch.setattr(audit, "AuditedBody", look)
    audit.Audit(problem.phases.make(5))
    assert looked == [5, 0, 1]


def test_what_a_tool_does_is_said() -> None:
    config = make_config(LAID, environ={})
    (note,) = config.model.notes(config)  # type: ignore[union-attr]
    assert note == ("wall comes from 0.5 to 2.5 s in 5 pieces, one every 0.5 s, 2 times until 5 s")


# What goes by itself, since it is too hot.

Q, HOT = 1e6, 1000.0  # W/m^2, degC
CHAR = {"conductivity": 1.0, "density": 1000.0, "specific_heat": 1000.0}
ABLATION: dict[str, Any] = {
    "grid": {"shape": [120], "size": ["12 mm"]},
    "model": {
        "type": "heat",
        "materials": {"char": CHAR},
        "regions": [
            # So hot that the flux does not depend on the temperature of the surface.
            {"name": "flame", "fluid": {"ambient": 1e9, "h": Q / 1e9}},
            {"name": "char", "material": "char", "box": {"x": ["0.5 mm", "12 mm"]}},
        ],
    },
    "initial": {"type": "constant", "value": 0},
    "boundaries": {"*": {"type": "neumann"}},
    "time": {"t_end": "6 s"},
    "compute": QUICK,
}
ABLATION["model"]["regions"][1]["goes"] = {"above": HOT}


@pytest.mark.parametrize("scheme", ["explicit", "implicit"])
def test_a_surface_recedes_as_fast_as_heat_comes(scheme: str, tmp_path: Path) -> None:
    time = {"t_end": "6 s"} | ({"scheme": "implicit", "dt": "2 ms"} if scheme == "implicit" else {})
    output = {"directory": str(tmp_path), "fields": {"every": "0.5 s"}, "pictures": False}
    output["statistics"] = {"every": "0.5 s"}
    config = {
        **ABLATION,
        "time": time,
        "output": output,
        "compute": {"devices": "cpu", "threads": 1},
    }
    ts.run(config)
    table = _table(tmp_path)
    gone, heat = table["heat gone [J/m^2]"], table["heat stored [J/m^2]"]
    assert abs(table["heat residual [J/m^2]"]).max() < 1e-9 * gone[-1]
    np.testing.assert_allclose(heat + gone, Q * table["time [s]"], rtol=1e-4, atol=50)

    # Landau (1950) without latent heat: v = q / (rho c T_a), T = T_a exp(-v x / alpha).
    speed, alpha = Q / (1e6 * HOT), 1e-6
    h = 1e-4
    with h5py.File(tmp_path / "fields.h5") as file:
        field, times = np.asarray(file["temperature"])[:, :], np.asarray(file["time"])
    # A cell that has gone shows the flame.
    there = field < 1e6
    places = [np.flatnonzero(it)[0] * h for it in there]
    late = times > 3
    found = np.polyfit(times[late], np.array(places)[late], 1)[0]
    assert found == pytest.approx(speed, rel=0.02)
    x = (np.arange(there[-1].sum()) + 0.5) * h
    profile = field[-1][there[-1]]
    # The surface lies up to a cell before the place where it would be.
    shift = alpha / speed * np.log(HOT / profile[5]) - x[5]
    assert abs(shift) < h
    wanted = HOT * np.exp(-speed * (x + shift) / alpha)
    inner = (x > 5 * h) & (x < 4 * alpha / speed)
    np.testing.assert_allclose(profile[inner], wanted[inner], rtol=0, atol=2e-3 * HOT)


BURNING: dict[str, Any] = {
    **BEADS,
    "model": {
        "type": "heat",
        "materials": {"steel": STEEL, "felt": {**STEEL, "conductivity": 5, "density": 1000}},
        "regions": [
            {"name": "air", "fluid": {"ambient": 15, "h": 300}},
            {"name": "plate", "material": "steel", "box": {"y": [0, "4 mm"]}},
            {
                "name": "felt",
                "material": "felt",
                "box": {"x": ["2 mm", "14 mm"], "y": ["4 mm", "10 mm"]},
                "goes": {"above": 300, "every": "0.1 s"},
            },
            {"name": "lid", "material": "steel", "box": {"y": ["10 mm", "12 mm"]}, "to": "1.75 s"},
        ],
        "sources": [{"material": "felt", "density": "2e8*(0.2+100*x)"}],
    },
    "time": {"t_end": "3 s"},
}


def _burning(directory: Path, scheme: str = "explicit", **sections: Any) -> Any:
    output = {"statistics": {"every": "0.5 s"}, "fields": {"every": "0.5 s"}, "pictures": False}
    output["directory"] = str(directory)
    config = _changed(BURNING, output=output, **sections)
    if scheme == "implicit":
        config = {**_changed(config, time=IMPLICIT), "compute": SOLVED}
    return make_config(config, environ={})


@pytest.mark.parametrize("scheme", ["explicit", "implicit"])
def test_heat_of_what_burns_is_in_the_balance(scheme: str, tmp_path: Path) -> None:
    launch(_burning(tmp_path, scheme))
    table = _table(tmp_path)
    gone = table["heat gone [J/m]"]
    assert gone[-1] > 1e4
    assert len({*gone.round(3)}) > 5
    assert abs(table["heat residual [J/m]"]).max() < 1e-7 * gone[-1]
    # What was between felt and plate at first is between air and plate at the end.
    assert table["heat flow steel to air [W/m]"][-1] != 0
    assert (np.diff(gone) >= 0).all()
    # Some of it goes at a time at which it is looked at, never between.
    time = table["time [s]"]
    changed = time[1:][np.diff(gone) > 0]
    changed = changed[abs(changed - 1.75) > 1e-6]  # when the lid is taken off
    np.testing.assert_allclose(changed * 10, (changed * 10).round(), atol=1e-6)
    # Maps of the time of a record show what is left.
    with open_fields(tmp_path / "fields.h5") as series:
        left = []
        for record in range(len(series.times)):
            (material,) = (it for it in series.maps_at(record) if it.name == "material")
            left.append(
                int((material.read(((0, 12), (0, 16))) == material.meanings.index("felt")).sum())
            )
    assert left[0] == 72
    assert 0 < left[-1] < left[0]
    assert left == sorted(left, reverse=True)


@pytest.mark.parametrize("scheme", ["explicit", "implicit"])
def test_what_has_gone_is_in_checkpoints(scheme: str, tmp_path: Path) -> None:
    kept = {"checkpoint": {"every": "0.4 s", "keep": 100}}
    launch(_burning(tmp_path / "whole", scheme, **kept))
    for first in (2, 5):
        shutil.copytree(tmp_path / "whole", tmp_path / f"part{first}")
        for path in sorted((tmp_path / f"part{first}/checkpoints").glob("*.h5"))[first:]:
            path.unlink()
        launch(_burning(tmp_path / f"part{first}", scheme, **kept), resume="auto")
        parts = tmp_path / f"part{first}", tmp_path / "whole"
        assert len({(it / "statistics.csv").read_text() for it in parts}) == 1
        with h5py.File(parts[0] / "fields.h5") as one, h5py.File(parts[1] / "fields.h5") as two:
            np.testing.assert_array_equal(one["temperature"], two["temperature"])
    # A checkpoint shows the body of its time.
    found = []
    for path in sorted((tmp_path / "whole/checkpoints").glob("*.h5")):
        with sources.open_series(path) as series:
            (material,) = (it for it in series.maps if it.name == "material")
            felt = material.meanings.index("felt")
            found.append(int((material.read(((0, 12), (0, 16))) == felt).sum()))
    assert len({*found}) > 3
    assert found == sorted(found, reverse=True)


def test_what_burns_is_the_same_on_ranks_and_by_every_method(tmp_path: Path) -> None:
    def work(ranks: Communicator) -> None:
        launch(_burning(tmp_path / "two"), ranks=ranks)

    tiled = {"devices": "cpu", "method": "cpu.tessellate", "threads": 2}
    launch(_burning(tmp_path / "one"))
    launch(_burning(tmp_path / "tiled", compute=tiled))
    run_ranks(2, work)
    for other in ("two", "tiled"):
        with (
            h5py.File(tmp_path / "one/fields.h5") as a,
            h5py.File(tmp_path / other / "fields.h5") as b,
        ):
            np.testing.assert_array_equal(a["temperature"], b["temperature"])
        one, two = (_table(tmp_path / it) for it in ("one", other))
        for key, values in one.items():
            np.testing.assert_array_equal(values, two[key], err_msg=key)


def test_a_simulation_goes_on_without_what_has_gone() -> None:
    with ts.simulate(BURNING) as simulation:
        simulation.run(2.0)
        before = np.array(simulation.field())
        gone = simulation.problem.phase
        assert gone > 3
        with simulation.with_boundary({"y-": {"type": "insulated"}}) as other:
            np.testing.assert_array_equal(other.field(), before)
            assert other.problem.phase == gone
            other.run()
            assert other.problem.phase >= gone


def test_all_may_go(tmp_path: Path) -> None:
    regions = [{"name": "air", "void": True}, BURNING["model"]["regions"][2]]
    model = {"regions": regions, "materials": {"felt": BURNING["model"]["materials"]["felt"]}}
    config = _burning(tmp_path, model=model, boundaries={"y-": {"type": "insulated"}})
    launch(config)
    table = _table(tmp_path)
    assert table["heat [J/m]"][-1] == 0
    residual = abs(table["heat residual [J/m]"]).max()
    assert residual < 1e-9 * table["heat gone [J/m]"][-1]


def test_what_cannot_go_is_refused() -> None:
    def told(number: int, **keys: Any) -> str:
        regions = [dict(it) for it in BURNING["model"]["regions"]]
        regions[number] |= keys
        with pytest.raises(ConfigError) as raised:
            make_config(_changed(BURNING, model={"regions": regions}), environ={}).build()
        return str(raised.value)

    assert "model.regions.0.goes: only a material" in told(0, goes={"above": 100})
    slanted = told(2, box=None, where="hypot(x - 8e-3, y - 7e-3) < 3e-3")
    assert "model.regions.2.goes: cells go whole" in slanted
    assert "above" in told(2, goes={"every": "1 s"})
    config = make_config(BURNING, environ={})
    (going, lid) = config.model.notes(config)  # type: ignore[union-attr]
    assert going == "cells of felt go above 300 degC, looked at every 0.1 s"
    assert lid == "at 1.75 s lid goes"
