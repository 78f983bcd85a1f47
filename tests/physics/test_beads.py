"""Beads that a tool lays down along its path, and what is repeated."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import solve_ivp

import tetris_sim as ts
from tests.support.phase_cases import (
    BEADS,
    IMPLICIT,
    JOINT,
    QUICK,
    SOLVED,
    STEEL,
    Numbers,
    balance_of,
    changed,
    mistakes,
)
from tests.support.thread_ranks import run_ranks
from tetris_sim.config import make_config
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.simulation.launch import launch

AIR, PLATE = BEADS["model"]["regions"][:2]
LAID: dict[str, Any] = changed(
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
    return changed(LAID, model={"regions": [AIR, PLATE, *pieces]})


def _repeated() -> dict[str, Any]:
    first = {**BEADS["model"]["regions"][2], "repeat": {"count": 3, "shift": ["2 mm", "1 mm"]}}
    first["repeat"]["after"] = "0.5 s"
    return changed(LAID, model={"regions": [AIR, PLATE, first]})


def _state(config: dict[str, Any]) -> Numbers:
    with ts.simulate(config) as simulation:
        simulation.run()
        return np.array(simulation.field())


@pytest.mark.parametrize("time", [{}, IMPLICIT], ids=["explicit", "implicit"])
def test_a_bead_is_what_its_pieces_are(time: dict[str, Any]) -> None:
    cells = {"grid": {"shape": [32, 12], "size": ["16 mm", "12 mm"]}}
    both = [
        {**changed(it, time=time, **cells), "compute": SOLVED if time else QUICK}
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
        config = changed(
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
    one = make_config(changed(LAID, model={"regions": [AIR, PLATE, *copies]}), environ={}).build()
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
        return make_config(changed(config, output=output, time=time), environ={})

    def work(ranks: Communicator) -> None:
        launch(asked("two"), ranks=ranks)

    launch(asked("one"))
    run_ranks(2, work)
    one, two = (balance_of(tmp_path / it) for it in ("one", "two"))
    for key, values in one.items():
        np.testing.assert_array_equal(values, two[key], err_msg=key)
    arrived = one["heat arrived [J/m]"]
    # As much as the bead holds: 12 mm of 2 mm in two layers.
    assert arrived[-1] == pytest.approx(2 * 0.012 * 0.002 * 4e6 * 1200, rel=1e-9)
    assert abs(one["heat residual [J/m]"]).max() < 1e-7 * arrived[-1]
    assert len({*np.round(arrived, 3)}) == 11  # nothing, and what came with ten pieces


def test_a_run_with_a_bead_continues_with_the_same_bits(tmp_path: Path) -> None:
    config = changed(LAID, output={"statistics": {"every": "0.5 s"}, "pictures": False})
    config = {**config, "checkpoint": {"every": "0.8 s", "keep": 100}}

    def asked(directory: Path) -> Any:
        return make_config(changed(config, output={"directory": str(directory)}), environ={})

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
    config = changed(BEADS, grid={"shape": shape, "size": size})
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
        return mistakes(model={**LAID["model"], "regions": [AIR, PLATE, region]})

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
