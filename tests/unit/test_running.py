"""ts.run and ts.open_result: a configuration in one call honours all that it says."""

from __future__ import annotations

import gc
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tetris_sim.errors import CheckpointError, ConfigError, UnsupportedError

QUICK = {"method": "cpu.plain", "threads": 1}


def plate(**more: Any) -> dict[str, Any]:
    return {
        "grid": {"shape": [20, 14], "size": ["10 mm", "7 mm"]},
        "model": {"type": "heat", "material": "copper"},
        "initial": {"type": "gaussian", "amplitude": 100, "sigma": "2 mm"},
        "boundaries": {"*": {"type": "neumann"}, "x-": {"type": "dirichlet", "value": 20}},
        "time": {"dt": "0.2 ms", "steps": 10},
        "compute": QUICK,
        **more,
    }


OUTPUT = {
    "fields": {"every": "4 steps"},
    "parts": [{"name": "row", "slice": {"y": "2 mm"}, "every": "5 steps"}],
    "probes": [{"name": "mid", "at": ["5 mm", "3.5 mm"], "every": "2 steps"}],
    "statistics": {"every": "5 steps"},
    "pictures": False,
}


def by_hand(config: dict[str, Any]) -> Any:
    problem = ts.make_config(config).build()
    compute = ts.make_config(config).compute
    with ts.open_simulation(
        problem, ts.make_plan(problem, ts.find_machine(), compute)
    ) as simulation:
        simulation.run()
        return simulation.field()[0]


def test_all_that_compute_output_and_checkpoint_say_is_honoured(tmp_path: Path) -> None:
    checkpoint = {"every": "3 steps", "keep": 2, "at_end": False}
    result = ts.run(plate(output=OUTPUT, checkpoint=checkpoint), tmp_path / "out", progress=False)

    assert result.directory == tmp_path / "out"
    assert set(result.report.methods.values()) == {"cpu.plain"}
    assert list(result.fields.step.values) == [0, 4, 8, 10]
    assert list(result.part("row").step.values) == [0, 5, 10]
    assert result.part("row").temperature.dims == ("time", "x")
    assert list(result.probes["mid"].step) == [0, 2, 4, 6, 8, 10]
    assert list(result.statistics.step) == [0, 5, 10]
    assert len(list((tmp_path / "out" / "checkpoints").glob("checkpoint_*.h5"))) == 2
    np.testing.assert_array_equal(result.field(), by_hand(plate()))


def test_results_without_a_directory_go_with_the_last_that_needs_them() -> None:
    result = ts.run(plate(output={"fields": {"every": "5 steps"}}), progress=False)
    directory, fields = result.directory, result.fields.temperature.isel(time=-1)
    assert not (directory / "overview.png").exists()
    assert not (directory / "checkpoints").exists()
    del result
    gc.collect()
    np.testing.assert_array_equal(fields.values, by_hand(plate()))
    del fields
    gc.collect()
    assert not directory.exists()


def test_the_last_state_is_there_without_any_output() -> None:
    result = ts.run(plate(), progress=False)
    assert result.fields.temperature.shape == (1, 14, 20)
    np.testing.assert_array_equal(result.fields.temperature[0], result.field("temperature"))
    with pytest.raises(ConfigError, match=r"there is no field 'temperatur'.*temperature"):
        result.field("temperatur")


def test_an_array_may_be_the_initial_state(tmp_path: Path) -> None:
    u = np.random.default_rng(1).uniform(0, 1, (14, 20))
    config = {key: value for key, value in plate().items() if key != "initial"}
    before = u.copy()
    result = ts.run(config, tmp_path, initial=u, progress=False)
    np.testing.assert_array_equal(u, before)

    # What it began with is written down, so that the run can be made again.
    again = ts.run(tmp_path / "resolved.yaml", tmp_path / "again", progress=False)
    np.testing.assert_array_equal(again.field(), result.field())
    assert abs(result.field() - ts.run(plate(), progress=False).field()).max() > 1
    with pytest.raises(ConfigError, match=r"initial.*shape"):
        ts.run(config, initial=u[1:], progress=False)


def test_initial_arrays_of_equations_go_by_name() -> None:
    config = {
        "grid": {"shape": [16], "size": [1.0]},
        "model": {
            "type": "pde",
            "fields": {"u": {"equation": "0.01*laplace(u) - v"}, "v": {"equation": "0*v"}},
        },
        "boundaries": {"x": {"type": "periodic"}},
        "time": {"dt": 1e-3, "steps": 5},
        "compute": QUICK,
    }
    result = ts.run(config, initial={"u": np.ones(16), "v": np.full(16, 2.0)}, progress=False)
    np.testing.assert_allclose(result.field("u"), 1 - 5e-3 * 2, rtol=1e-12)


def test_changes_count_more_than_the_file_and_are_named_where_they_are_wrong(
    tmp_path: Path,
) -> None:
    path = tmp_path / "plate.yaml"
    path.write_text(json.dumps(plate()))  # JSON is YAML
    result = ts.run(path, tmp_path / "out", changes={"time.steps": 3}, progress=False)
    assert result.report.step == 3
    assert (tmp_path / "out" / "overview.png").exists()
    with pytest.raises(ConfigError, match=r"changes\['time.stepps'\]"):
        ts.run(path, changes={"time.stepps": 3}, progress=False)
    with pytest.raises(ConfigError, match="a path, a mapping"):
        ts.run(3, progress=False)  # type: ignore[arg-type]


def test_results_of_an_earlier_run_are_safe(tmp_path: Path) -> None:
    first = ts.run(plate(), tmp_path, progress=False)
    with pytest.raises(ConfigError, match="already holds the results"):
        ts.run(plate(), tmp_path, initial=np.ones((14, 20)), progress=False)
    assert not (tmp_path / "initial.npy").exists()
    again = ts.run(plate(), tmp_path, overwrite=True, progress=False)
    np.testing.assert_array_equal(again.field(), first.field())
    longer = ts.run(plate(), tmp_path, changes={"time.steps": 12}, resume="auto", progress=False)
    assert (longer.report.first_step, longer.report.step) == (10, 12)


def test_a_result_is_opened_from_its_directory(tmp_path: Path) -> None:
    result = ts.run(plate(output=OUTPUT), tmp_path, progress=False)
    opened = ts.open_result(tmp_path)
    assert opened.report == result.report
    assert opened.config == result.config
    assert opened.fields.identical(result.fields)
    with pytest.raises(CheckpointError, match="no report of a run"):
        ts.open_result(tmp_path / "nowhere")

    ts.run(plate(), tmp_path / "bare", progress=False)
    saved = ts.open_result(tmp_path / "bare")
    np.testing.assert_array_equal(saved.field(), result.field())


@pytest.mark.parametrize(
    "key",
    [
        (slice(None), slice(None), slice(None)),
        (-1, slice(2, 9, 3), 4),
        (slice(0, 3, 2), 5, slice(None, None, -2)),
        ([0, 2], [1, 1, 7], slice(3, 3)),
        (1, 2, 3),
    ],
)
def test_lazy_fields_are_indexed_as_arrays_are(tmp_path: Path, key: tuple[Any, ...]) -> None:
    lazy = ts.run(plate(output=OUTPUT), tmp_path, progress=False).fields.temperature
    whole = lazy.values
    lazy = ts.open_result(tmp_path).fields.temperature
    expected = whole
    for axis, part in reversed(list(enumerate(key))):
        expected = expected[(slice(None),) * axis + (part,)]
    np.testing.assert_array_equal(lazy[key].values, expected)


def test_the_accessor_knows_units_and_times() -> None:
    fields = ts.run(plate(output=OUTPUT), progress=False).fields
    kelvin = fields.tetris.to(temperature="K", x="mm", time="ms")
    assert (kelvin.temperature.attrs["units"], kelvin.x.attrs["units"]) == ("K", "mm")
    np.testing.assert_allclose(kelvin.temperature, fields.temperature + 273.15, rtol=1e-14)
    np.testing.assert_allclose(kelvin.time, [0, 0.8, 1.6, 2.0], rtol=1e-12)
    np.testing.assert_allclose(
        fields.temperature.tetris.to("degF"), fields.temperature * 1.8 + 32, rtol=1e-12
    )

    between = kelvin.tetris.at("1.2 ms")
    np.testing.assert_allclose(between.temperature, kelvin.temperature[1:3].mean("time"))
    assert between.temperature.attrs["units"] == "K"
    assert float(between.time) == pytest.approx(1.2)
    np.testing.assert_array_equal(fields.tetris.at("0.8 ms").temperature, fields.temperature[1])
    for wrong, words in (("3 ms", "records are from 0 s to 0.002 s"), ("3 mm", "a time")):
        with pytest.raises(ConfigError, match=words):
            fields.tetris.at(wrong)
    with pytest.raises(ConfigError, match=r"degC.*m is wanted"):
        fields.tetris.to(temperature="m")
    with pytest.raises(ConfigError, match="no 'y2'"):
        fields.tetris.to(y2="mm")


@pytest.mark.parametrize("missing", ["xarray", "pandas"])
def test_without_optional_packages_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    result = ts.run(plate(output=OUTPUT), progress=False)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )
    with pytest.raises(UnsupportedError, match=rf"{missing} is not installed.*\[notebook\]"):
        getattr(result, "fields" if missing == "xarray" else "statistics")
    assert result.field().shape == (14, 20)


def test_what_was_not_asked_for_is_named() -> None:
    result = ts.run(plate(), progress=False)
    with pytest.raises(ConfigError, match=r"output.statistics: \{every"):
        assert result.statistics is None
    with pytest.raises(ConfigError, match=r"output.parts has no 'row'"):
        result.part("row")
    assert result.probes == {}


def test_pictures_are_made_of_any_record(tmp_path: Path) -> None:
    result = ts.run(plate(output=OUTPUT), progress=False)
    first, last = result.plot(time=0), result.plot()
    assert first.moment.get_text() != last.moment.get_text()
    assert last._repr_png_().startswith(b"\x89PNG")
    last.save(tmp_path / "last.png")
    assert (tmp_path / "last.png").stat().st_size > 1000
    with pytest.raises(ConfigError, match="a slice is for 3D"):
        result.plot(cut={"z": "1 mm"})
