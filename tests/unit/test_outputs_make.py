from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.outputs_samples import make_problem, names, snapshot, state
from tetris_sim.config import Config, make_config
from tetris_sim.errors import ConfigError
from tetris_sim.model.problem import Problem
from tetris_sim.outputs.fields import FieldsOutput
from tetris_sim.outputs.make import make_outputs, name_probes
from tetris_sim.outputs.pictures import PicturesOutput
from tetris_sim.outputs.series import open_fields
from tetris_sim.outputs.tables import ProbeOutput, StatisticsOutput, read_table


def config_of(**output: Any) -> Config:
    return make_config(
        {
            "schema": 1,
            "title": "A plate",
            "grid": {"shape": [8, 5], "size": [0.8, 0.25]},
            "model": {"type": "heat", "diffusivity": 1e-4},
            "initial": {"type": "constant", "value": 20},
            "boundaries": {"*": {"type": "neumann"}},
            "time": {"dt": 0.5, "steps": 40},
            "output": {"pictures": False, **output},
        }
    )


PLATE = make_problem((5, 8), (0.25, 0.8))


def test_nothing_asked_for_is_nothing_written(tmp_path: Path) -> None:
    assert make_outputs(config_of(), PLATE, tmp_path) == ()


def test_each_section_has_its_output_and_its_times(tmp_path: Path) -> None:
    config = config_of(
        pictures=True,
        fields={"every": "15 steps"},
        probes=[
            {"at": [0.1, 0.1], "every": "3 s"},
            {"at": [0.2, 0.1], "every": "7 steps", "name": "b"},
        ],
        statistics={"every": "30 steps"},
    )
    outputs = make_outputs(config, PLATE, tmp_path)
    assert [type(output) for output in outputs] == [
        FieldsOutput,
        ProbeOutput,
        ProbeOutput,
        StatisticsOutput,
        PicturesOutput,
    ]
    assert [output.next_step(0) for output in outputs] == [15, 6, 7, 30, 40]
    assert names(tmp_path) == []  # nothing before start()


def test_the_configuration_goes_into_the_fields_and_gives_the_same_run_again(
    tmp_path: Path,
) -> None:
    from tetris_sim.config import read_config

    config = config_of(fields={"every": "20 steps", "compression": "gzip"})
    (output,) = make_outputs(config, PLATE, tmp_path, run_id="run-7")
    output.start(0)
    output.write(snapshot(PLATE, 0))
    output.close()
    with open_fields(tmp_path / "fields.h5") as series:
        assert series.meta["run_id"] == "run-7"
        assert series.meta["title"] == "A plate"
        assert {"tetris_sim", "python", "numpy", "numba", "h5py"} <= set(series.meta["versions"])
        again = read_config(series.meta["config"], name="fields.h5", base=tmp_path)
    assert again == config


def test_positions_are_x_y_z_in_the_configuration(tmp_path: Path) -> None:
    # x = 0.75 m is point 7 of 8, y = 0.025 m point 0 of 5.
    (output,) = make_outputs(
        config_of(probes=[{"at": [0.75, 0.025], "every": "1 steps"}]), PLATE, tmp_path
    )
    output.start(0)
    output.write(snapshot(PLATE, 0))
    output.close()
    _, rows = read_table(tmp_path / "probes" / "probe_1.csv")
    assert rows[0][2] == pytest.approx(state(PLATE, 0)[0, 0, 7], rel=1e-12)


def test_probes_without_a_name_get_one_that_is_free() -> None:
    at = {"at": [0.1, 0.1], "every": "1 steps"}
    config = config_of(probes=[at, {**at, "name": "probe_2"}, at, {**at, "name": "core"}, at])
    assert list(name_probes(config.output.probes)) == [
        "probe_1",
        "probe_2",
        "probe_3",
        "core",
        "probe_4",
    ]


@pytest.mark.parametrize("place", [[0.0, 0.0], [0.8, 0.25], [0.8 + 1e-12, 0.1]])
def test_a_probe_may_lie_on_a_face(tmp_path: Path, place: list[float]) -> None:
    (output,) = make_outputs(_with_probe(place), PLATE, tmp_path)
    output.start(0)
    output.write(snapshot(PLATE, 0))
    output.close()


def _with_probe(place: list[float]) -> Config:
    """Built past the checks of the configuration, which refuse some of these earlier."""
    config = config_of(probes=[{"at": [0.1, 0.1], "every": "1 steps"}])
    (probe,) = config.output.probes
    output = config.output.model_copy(
        update={"probes": (probe.model_copy(update={"at": tuple(place)}),)}
    )
    return config.model_copy(update={"output": output})


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ([0.9, 0.1], r"x = 0\.9 m, outside the box, which is from 0 m to 0\.8 m"),
        ([0.1, -0.01], r"y = -0\.01 m, outside the box"),
        ([0.1], "1 components, but the grid has 2 axes"),
    ],
)
def test_a_probe_outside_the_box_is_refused_before_the_run(
    tmp_path: Path, place: list[float], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_outputs(_with_probe(place), PLATE, tmp_path)


def everything() -> Config:
    return config_of(
        pictures=False,
        fields={"every": "10 steps"},
        probes=[{"at": [0.1, 0.1], "every": "4 steps"}],
        statistics={"every": "5 steps"},
    )


def drive(problem: Problem, directory: Path, begin: int, end: int) -> None:
    """What the run loop asks of the outputs between two steps."""
    outputs = make_outputs(everything(), problem, directory)
    for output in outputs:
        output.start(begin)
    for step in range(begin if begin == 0 else begin + 1, end + 1):
        for output in outputs:
            if step == 0 or output.next_step(step - 1) == step:
                output.write(snapshot(problem, step))
    for output in outputs:
        output.close()


@pytest.mark.parametrize(("stopped", "resumed"), [(20, 20), (33, 20), (40, 7), (13, 12)])
def test_a_run_that_was_interrupted_and_resumed_leaves_the_same_files(
    tmp_path: Path, stopped: int, resumed: int
) -> None:
    drive(PLATE, tmp_path / "whole", 0, 40)
    drive(PLATE, tmp_path / "parts", 0, stopped)
    drive(PLATE, tmp_path / "parts", resumed, 40)
    assert names(tmp_path / "parts") == names(tmp_path / "whole")
    for name in names(tmp_path / "whole"):
        if name.endswith(".h5"):
            with (
                open_fields(tmp_path / "parts" / name) as part,
                open_fields(tmp_path / "whole" / name) as whole,
            ):
                assert part.steps == whole.steps
                box = ((0, 5), (0, 8))
                for record in range(len(part.steps)):
                    assert (part.read(record, 0, box) == whole.read(record, 0, box)).all()
        else:
            assert (tmp_path / "parts" / name).read_bytes() == (
                tmp_path / "whole" / name
            ).read_bytes()
