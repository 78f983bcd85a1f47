"""The sections by themselves, and what the schema says about itself in words."""

from __future__ import annotations

import subprocess
import sys
import typing
from typing import Any

import pytest
from pydantic import ValidationError

from tetris_sim.config import Config
from tetris_sim.config.section_checks import (
    KeyKind,
    find_spot,
    homes,
    keys_of,
    open_annotation,
    tags_of,
    wanted,
)
from tetris_sim.config.sections.conditions import GaussianInitial
from tetris_sim.config.sections.grid import GridSection
from tetris_sim.config.sections.quantities import Every, Section
from tetris_sim.config.sections.schema import (
    CheckpointSection,
    ComputeSection,
    OutputSection,
    Request,
    TimeSection,
)


def request(**sections: Any) -> Request:
    return Request.model_validate(
        {
            "grid": {"shape": [6, 5]},
            "initial": {"type": "constant", "value": 0},
            "boundaries": {"*": {"type": "neumann"}},
            "time": {"steps": 1},
            **sections,
        }
    )


def all_sections(section: type[Section] = Config) -> dict[str, type[Section]]:
    """Every section class that a configuration may hold, by class name."""
    found = {section.__name__: section}
    for kind in keys_of(section).values():
        for inner in _sections_in(kind):
            found |= all_sections(inner)
    return found


def _sections_in(kind: KeyKind) -> list[type[Section]]:
    if kind.section is not None:
        return [kind.section]
    parts = typing.get_args(kind.base)
    return [section for part in parts for section in _sections_in(open_annotation(part))]


def test_defaults_are_those_of_a_careful_run() -> None:
    defaults = request()
    assert defaults.compute == ComputeSection(
        devices="auto", method="auto", precision="float64", threads="auto"
    )
    assert defaults.checkpoint == CheckpointSection(every=None, keep=2, at_end=True)
    assert defaults.output == OutputSection(
        directory=None, fields=None, probes=(), statistics=None, pictures=True
    )
    assert (defaults.time.safety, defaults.run.max_walltime, defaults.schema_version) == (
        0.9,
        None,
        1,
    )


def test_the_number_of_axes_is_that_of_the_shape() -> None:
    assert [request(grid={"shape": shape}).ndim for shape in ([7], [7, 5], [7, 5, 3])] == [1, 2, 3]


@pytest.mark.parametrize(
    ("section", "keys", "part"),
    [
        (
            GridSection,
            {"shape": [3, 4], "size": [1, 2], "spacing": [1, 2]},
            "size and spacing are both given",
        ),
        (GridSection, {"shape": [3, 4], "size": [1]}, "size has 1 entries but shape has 2"),
        (
            GridSection,
            {"shape": [3, 4], "spacing": [1, 1, 1]},
            "spacing has 3 entries but shape has 2",
        ),
        (TimeSection, {"dt": 1, "cfl": 0.2, "steps": 3}, "dt and cfl are both given"),
        (TimeSection, {"dt": 1}, "give either t_end or steps"),
        (TimeSection, {"steps": 1, "t_end": 1}, "give either t_end or steps"),
        (
            OutputSection,
            {"probes": [{"at": [1], "every": 1, "name": "a"}] * 2},
            "two probes are named 'a'",
        ),
    ],
)
def test_keys_that_contradict_each_other_are_refused(
    section: type[Section], keys: dict[str, Any], part: str
) -> None:
    with pytest.raises(ValidationError, match=part):
        section.model_validate(keys)


@pytest.mark.parametrize("name", sorted(all_sections()))
def test_every_section_refuses_unknown_keys_and_cannot_be_changed(name: str) -> None:
    config = all_sections()[name].model_config
    assert config.get("extra") == "forbid"
    assert config.get("frozen") is True
    assert config.get("allow_inf_nan") is False


@pytest.mark.parametrize(
    "sections",
    [
        {"grid": {"shape": [True, 5]}},
        {"grid": {"shape": [6, 5], "size": [True, 1]}},
        {"time": {"steps": True}},
        {"time": {"steps": 1, "cfl": True}},
        {"compute": {"threads": True}},
        {"compute": {"shares": [True]}},
        {"initial": {"type": "expression", "expression": "a", "constants": {"a": True}}},
        {"initial": {"type": "random", "seed": False}},
        {"checkpoint": {"every": True}},
        {"schema": True},
    ],
)
def test_true_is_not_the_number_one(sections: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        request(**sections)


def test_true_is_true_where_a_truth_value_is_wanted() -> None:
    made = request(output={"pictures": False}, checkpoint={"at_end": False})
    assert (made.output.pictures, made.checkpoint.at_end) == (False, False)


def test_an_amplitude_is_a_difference_of_temperatures() -> None:
    keys = {"type": "gaussian", "sigma": 1, "background": "300 K"}
    for text in ("100 K", "100 degC", 100):
        assert GaussianInitial.model_validate({**keys, "amplitude": text}).amplitude == 100
    assert GaussianInitial.model_validate({**keys, "amplitude": 1}).background == 26.85


def test_whole_numbers_may_be_written_with_an_exponent() -> None:
    assert request(time={"steps": 1e6}).time.steps == 1_000_000
    with pytest.raises(ValidationError):
        request(time={"steps": 1.5})


def test_what_is_resolved_is_plain_and_leads_back() -> None:
    made = request(
        title="a plate",
        output={"fields": {"every": "100 steps"}, "probes": [{"at": ["1 m", 2], "every": "1 ms"}]},
        checkpoint={"every": "30 min wall"},
    )
    values = made.resolved()
    assert values["schema"] == 1
    assert values["output"]["fields"]["every"] == "100 steps"
    probe = {"at": [1.0, 2.0], "every": "0.001 s", "interpolation": "linear"}
    assert values["output"]["probes"] == [probe]
    assert values["checkpoint"]["every"] == "1800.0 s wall"
    assert Request.model_validate(values) == made
    assert made.checkpoint.every == Every(1800.0, "wall")


def test_what_is_wanted_is_said_in_plain_words() -> None:
    said = {
        (name, key): wanted(kind)
        for name, section in all_sections().items()
        for key, kind in keys_of(section).items()
    }
    assert (
        said["GridSection", "shape"]
        == "a list of 1 to 3 entries, each a whole number greater than 0"
    )
    assert said["GridSection", "size"] == "a list of entries, each a length greater than 0"
    assert said["TimeSection", "dt"] == "auto or a time greater than 0"
    assert said["TimeSection", "safety"] == "a number greater than 0 and of at most 1"
    devices = (
        "auto, cpu, gpu, cpu+gpu or a list of 1 or more entries, each cpu, gpu:NUMBER or "
        "simulated:NUMBER"
    )
    assert said["ComputeSection", "devices"] == devices
    assert said["CheckpointSection", "every"] == "an interval greater than 0"
    assert said["OutputSection", "pictures"] == "true or false"
    assert said["OutputSection", "directory"] == "text"
    assert said["Config", "model"] == "a section with a type (heat, stencil or pde)"
    for words in said.values():
        assert "something else" not in words
        assert not any(sign in words for sign in "<>[]|")


def test_a_pydantic_location_becomes_a_path_of_keys() -> None:
    whole = KeyKind(Config)
    for location, path in [
        (("initial", "gaussian", "sigma"), ("initial", "sigma")),
        (("boundaries", "x-", "tagged-union[...]", "robin", "h"), ("boundaries", "x-", "h")),
        (("boundaries", "x", "tuple[...]", 1, "robin", "h"), ("boundaries", "x", 1, "h")),
        (
            ("model", "heat", "materials", "a", "function-after[MaterialSection]", "density"),
            ("model", "materials", "a", "density"),
        ),
        (("boundaries", "w", "[key]"), ("boundaries", "w")),
        (("time", "dt", "literal['auto']"), ("time", "dt")),
        (("compute", "devices", "tuple[constrained-str, ...]", 1), ("compute", "devices", 1)),
        (("output", "probes", 0, "at", 1), ("output", "probes", 0, "at", 1)),
        (("model", "stencil", "weights", "dict[...]", "0, 0"), ("model", "weights", "0, 0")),
        (("model", "stencil", "weights", "tuple[float, ...]", 2), ("model", "weights", 2)),
        (("grid", "nonsense"), ("grid", "nonsense")),
    ]:
        assert find_spot(whole, location).path == path


def test_the_home_of_a_misplaced_key_is_known() -> None:
    assert homes(Config, "t_end") == ["time"]
    assert homes(Config, "sigma") == [
        "initial (type: gaussian)",
        "model (type: pde).fields.initial (type: gaussian)",
        "model (type: pde).fields.initial_imag (type: gaussian)",
        "model (type: pde).fields.initial_velocity (type: gaussian)",
        "model (type: pde).fields.initial_velocity_imag (type: gaussian)",
    ]
    assert homes(Config, "material") == [
        "output.statistics.over",
        "model (type: heat)",
        "model (type: heat).materials",
        "model (type: heat).regions",
        "model (type: heat).sources (type: volume)",
    ]
    assert homes(Config, "grid") == ["the top level"]
    assert homes(Config, "compression") == ["output.fields", "output.parts"]
    assert homes(Config, "type") == []
    assert homes(Config, "no such key") == []


def test_every_choice_of_sections_is_made_by_a_tag() -> None:
    assert list(tags_of(keys_of(Config)["model"])) == ["heat", "stencil", "pde"]
    assert set(tags_of(keys_of(Config)["initial"])) == {
        "gaussian",
        "expression",
        "constant",
        "file",
        "random",
        "run",
    }


def test_importing_the_package_stays_light() -> None:
    heavy = ("pydantic", "pint", "ruamel", "scipy", "numba", "matplotlib", "h5py")
    code = f"import sys, tetris_sim; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
