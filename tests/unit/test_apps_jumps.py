"""Tables that jump: over time, from columns of files, and over temperature."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tetris_sim.api.running import run
from tetris_sim.apps.heat.sections import MaterialSection
from tetris_sim.apps.pde.fields import _as_formula
from tetris_sim.apps.time_functions import read_course
from tetris_sim.config import load_config
from tetris_sim.config.sections.quantities import POWER
from tetris_sim.config.sections.varying import Varying
from tetris_sim.model.formula import evaluate
from tetris_sim.outputs.results import CONFIG

KIND = Varying(POWER, ("t",))
TRACE = "time [ms],core0 [kW],core1 [W],cache\n0,1,7,3\n10,2,8,4\n30,4,9,5\n"


def at(given: Any, *times: float) -> list[float]:
    course = read_course(KIND.read(given), KIND, "power")
    found = course.at(np.array(times)).tolist()
    # The same as a formula, as equations have it.
    values = np.broadcast_to(evaluate(_as_formula(course), {"t": np.array(times)}), len(times))
    np.testing.assert_allclose(values, found, rtol=1e-12)
    return [float(it) for it in found]


def test_two_rows_of_one_time_are_a_jump_and_the_second_holds_from_then_on() -> None:
    table = {"table": [[0, 1], [10, 3], [10, 8], [20, 6]]}
    assert at(table, -1, 0, 5, 10 - 1e-9, 10, 15, 30) == pytest.approx([1, 1, 2, 3, 8, 7, 6])
    ends = {"table": [[0, 1], [0, 2], [4, 2], [4, 5]]}
    assert at(ends, -1, 0, 3, 4, 9) == [1, 2, 2, 5, 5]


def test_values_that_are_held_are_stairs() -> None:
    given = {"table": [[0, 1], [10, 3], [20, 6]], "hold": True}
    assert at(given, -1, 0, 9.99, 10, 19.99, 20, 99) == [1, 1, 1, 3, 3, 6, 6]


def test_a_column_of_a_file_is_taken_by_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    file: dict[str, Any] = {"file": str(path), "hold": True}
    assert at({**file, "column": "core0"}, 0.005, 0.01, 1.0) == [1000, 2000, 4000]
    assert at({**file, "column": "core1", "time": "time"}, 0.0, 0.02) == [7, 8]
    assert at({**file, "column": "cache", "unit": "mW"}, 0.0, 0.02) == [0.003, 0.004]
    assert at({**file, "column": "core1", "unit": "W", "hold": False}, 0.005) == [7.5]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("time;core\n0;0\n10;0,1\n20;0,1\n", {"column": "core", "unit": "kW"}),
        ("# a trace\n\nZeit [s];core [kW]\n0;0\n10;0,1\n", {"column": "core", "time": "Zeit"}),
        ("time [s]  core [W]\n0 0\n10   1e2\n", {"column": "core"}),
        ("time\tcore\n0\t0\n10\t100\n", {"column": "core"}),
        ('t,"core, total [W]"\n0,0\n10,100\n', {"column": "core, total [W]", "time": "t"}),
    ],
    ids=["semicolons", "comments", "blanks", "tabs", "whole names"],
)
def test_tables_are_read_as_others_write_them(
    text: str, names: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    assert at({"file": str(path), **names}, 0, 5, 10, 30) == pytest.approx([0, 50, 100, 100])


def test_names_of_columns_may_have_letters_of_windows(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes("time,W\u00e4rme\n0,3\n".encode("cp1252"))
    assert at({"file": str(path), "column": "W\u00e4rme"}, 0) == [3]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"table": [[0, 1], [1, 2], [1, 3], [1, 4]]}, "ascend, but 1 s of row"),
        ({"table": [[0, 1], [2, 2], [1, 3]]}, "ascend, but 2 s of row 2 is followed by 1 s"),
        ({"table": [[0, 1]], "hold": "yes"}, "hold: .*true or false"),
        ({"table": [[0, 1]], "column": "a"}, "are for files, and rows"),
        ({"table": [[0, 1]], "file": "a.csv"}, "table or file is wanted"),
        ({"file": "a.csv", "colum": "a"}, "colum' was found"),
        ({"file": "a.csv", "time": "a"}, "name of a column"),
    ],
)
def test_malformed_tables_are_refused(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        KIND.read(given)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"column": "core7"}, "no column is named 'core7'; there are time, core0, core1 and cache"),
        ({"column": "core1", "time": "t"}, "no column is named 't'"),
        ({"column": "core1", "unit": "kW"}, "the values are in W, and unit says kW"),
        ({}, "4 columns"),
    ],
)
def test_files_without_such_a_column_are_refused(
    tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    if not more:
        path.write_text(TRACE.replace("30,4,9,5", "30,4,9"))
        more = {"column": "core1"}
    with pytest.raises(ValueError, match=said):
        KIND.rows(KIND.read({"file": str(path), **more}))  # type: ignore[arg-type]


def test_a_trace_beside_the_configuration_heats_a_body_and_is_kept(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("time,a,core0\n0,0,100\n2,0,300\n3,0,0\n")
    (tmp_path / "run.yaml").write_text("""
grid: {shape: [4], size: [0.1]}
model:
  type: heat
  materials: {m: {conductivity: 50, density: 1000, specific_heat: 100}}
  regions: [{material: m}]
  sources:
    - {power: {file: trace.csv, column: core0, time: time, unit: W, hold: true}}
initial: {type: constant, value: 0}
boundaries: {"*": {type: neumann}}
time: {dt: 0.25, t_end: 5}
output: {pictures: false, statistics: {every: 1 step}}
""")
    config = load_config(tmp_path / "run.yaml")
    result = run(config, tmp_path / "out", progress=False)
    np.testing.assert_allclose(result.field(), 500 / (0.1 * 1e5), rtol=1e-12)
    again = load_config(tmp_path / "out" / CONFIG)
    assert again.model.model_dump() == config.model.model_dump()


def curves(**given: Any) -> tuple[float, ...]:
    """Heat per volume from 0 to 100 degC, and the integral of k."""
    from tetris_sim.apps.heat.materials import make_enthalpy

    substance = MaterialSection(density=1000, **given).substance("m")
    assert substance.properties is not None
    it = make_enthalpy([substance.properties], [0], (1.0,))
    ids = np.zeros(2, np.int64)
    heat = it.from_temperature(np.array([0.0, 100.0]), ids)
    potential = it.of(it.potential, heat, ids)
    return float(heat[1] - heat[0]), float(potential[1] - potential[0])


@pytest.mark.parametrize("melting", [{}, {"latent_heat": 1e5, "solidus": 40}])
def test_properties_of_solid_and_liquid_jump(melting: dict[str, float]) -> None:
    latent = 1000 * melting.get("latent_heat", 0.0)
    jumping = {
        "conductivity": {"table": [[0, 2], [40, 2], [40, 0.5], [100, 0.5]]},
        "specific_heat": {"table": [[0, 2000], [40, 2000], [40, 4000]]},
    }
    stairs = {
        "conductivity": {"table": [[0, 2], [40, 0.5]], "hold": True},
        "specific_heat": {"table": [[0, 2000], [40, 4000]], "hold": True},
    }
    for given in (jumping, stairs):
        heat, potential = curves(**given, **melting)
        assert heat == pytest.approx(40 * 2e6 + 60 * 4e6 + latent, rel=1e-8)
        assert potential == pytest.approx(40 * 2 + 60 * 0.5, rel=1e-8)
