"""Where configurations come from: files, flags, the environment, Python data; and back into
text.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.config_cases import GOOD, changed, mistakes, read
from tetris_sim.config import load_config, make_config, read_config
from tetris_sim.config.sections.grid import GridSection
from tetris_sim.config.sections.quantities import Every
from tetris_sim.config.yaml import MOST_CHARACTERS, read_yaml
from tetris_sim.errors import ConfigError, ConfigMistakesError, Mistake, SourcePosition


def test_a_file_is_read_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    for name, encoding in (("plain.yaml", "utf-8"), ("marked.yaml", "utf-8-sig")):
        (tmp_path / name).write_text("title: größer\n" + GOOD, encoding=encoding)
        config = load_config(tmp_path / name, environ={})
        assert config.title == "größer"
        assert config.output.directory == f"results/{Path(name).stem}"


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"grid: 1\ntitle: gr\xf6\xdfer\n")
    (tmp_path / "large.yaml").write_bytes(b"#" * (MOST_CHARACTERS + 1))
    (tmp_path / "huge.yaml").write_bytes("€".encode() * (2 * MOST_CHARACTERS))
    for name, part in (
        ("none.yaml", f"{tmp_path}/none.yaml: there is no such file"),
        ("", f"{tmp_path}: this is a folder"),
        ("latin.yaml", f"{tmp_path}/latin.yaml:2:1: this is not text in UTF-8"),
        ("large.yaml", f"{tmp_path}/large.yaml: the text has"),
        ("huge.yaml", f"{tmp_path}/huge.yaml: the file is larger than"),
        ("a\0b", "null"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_config(tmp_path / name)
        assert part in str(caught.value)


def test_a_relative_input_file_belongs_to_the_configuration_wherever_both_are(
    tmp_path: Path,
) -> None:
    text = changed("initial", "initial: {type: file, path: data/start.npy}")
    for folder in (tmp_path / "here", tmp_path / "there"):
        (folder / "data").mkdir(parents=True)
        np.save(folder / "data" / "start.npy", np.zeros((10, 12)))
        (folder / "c.yaml").write_text(text)
        config = load_config(folder / "c.yaml", environ={})
        assert config.resolved()["initial"]["path"] == str(folder / "data" / "start.npy")
        config.build()


def test_variables_are_replaced_in_paths_only() -> None:
    text = (
        changed("initial", "initial: {type: file, path: '${DATA}/start.npy'}") + "title: ${DATA}\n"
    )
    config = read(text + "output: {directory: '${OUT}/${RUN}'}\n", DATA="/data", OUT="o", RUN="7")
    assert config.resolved()["initial"]["path"] == "/data/start.npy"
    assert config.output.directory == "o/7"
    assert config.title == "${DATA}"
    (only,) = mistakes(text)
    assert only.endswith(
        "initial.path: the environment variable DATA is not set; set it, or write the path out"
    )
    assert "holds ${...} itself" in mistakes(text, DATA="${X}")[0]
    assert "a path is wanted" in mistakes(GOOD + "output: {directory: '${E}'}\n", E="")[0]


def test_an_empty_section_with_defaults_means_the_defaults() -> None:
    assert read(GOOD + "output:\n  # fields: {every: 1}\ncompute:\n") == read(GOOD)


def test_set_counts_more_than_the_file_and_the_file_more_than_the_environment() -> None:
    environ = {
        "TETRIS_SIM_THREADS": "3",
        "TETRIS_SIM_METHOD": "cpu.plain",
        "TETRIS_SIM_DEVICES": "cpu, cpu",
    }
    config = read(GOOD, **environ)
    assert (config.compute.threads, config.compute.method, config.compute.devices) == (
        3,
        "cpu.plain",
        ("cpu", "cpu"),
    )
    config = read(GOOD + "compute: {threads: 5}\n", **environ)
    assert (config.compute.threads, config.compute.method) == (5, "cpu.plain")
    config = read(
        GOOD + "compute: {threads: 5}\n", "compute.threads=7", "compute.threads=8", **environ
    )
    assert config.compute.threads == 8
    assert read(GOOD, TETRIS_SIM_THREADS="") == read(GOOD)


def test_set_takes_yaml_values_and_reaches_into_lists() -> None:
    text = GOOD + "output: {probes: [{at: [1 mm, 2 mm], every: 1}]}\n"
    config = read(
        text, "output.probes.0.at=[3 mm, 4 mm]", "output.probes.1={at: [1e-3, 0], every: 2 steps}"
    )
    assert [probe.at for probe in config.output.probes] == [(0.003, 0.004), (0.001, 0.0)]
    assert read(GOOD, "time.t_end=", "time.steps=10").time.steps == 10
    assert read(GOOD, "output.fields.every=1 ms").output.fields is not None
    assert read(GOOD, "title=a=b").title == "a=b"
    assert read(GOOD, "boundaries.x-.value=5").resolved()["boundaries"]["x-"]["value"] == 5


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("time.t_end", "--set time.t_end: key=value is wanted, for example time.t_end=2"),
        ("=3", "--set =3: key=value is wanted"),
        ("time..t_end=3", "--set time..t_end=3: key=value is wanted"),
        ("time.t_end=[", "--set time.t_end=[: time.t_end: this is not YAML"),
        ("time.t_end={a: 1, a: 2}", "--set time.t_end={a: 1, a: 2}: time.t_end: 'a' is given twice"),
        ("time.t_end=15 mm", "--set time.t_end=15 mm: time.t_end: '15 mm' is a length; a time greater than 0 is"),
        ("time.tend=1", "--set time.tend=1: time.tend: unknown key (did you mean 't_end'?)"),
        ("grid.shape.5=1", "--set grid.shape.5=1: grid.shape.5: '5' is not the number of an entry; the list has 2"),
        ("model.type.x=1", "--set model.type.x=1: model.type.x: model.type is 'heat', which has no keys"),
        ("model={type: heat}", "--set model={type: heat}: model: give a material, or a diffusivity"),
        ("boundaries.x+={type: periodic}", "--set boundaries.x+={type: periodic}: boundaries.x+: x- and x+ are joined"),
    ],
)  # fmt: skip
def test_a_mistake_in_set_names_it_as_the_place(override: str, told: str) -> None:
    assert mistakes(GOOD, override)[0].startswith(told)


def test_a_mistake_in_the_environment_names_the_variable() -> None:
    assert mistakes(GOOD, TETRIS_SIM_THREADS="many") == [
        "TETRIS_SIM_THREADS: compute.threads: 'many' was found; auto or a whole number greater "
        "than 0 is wanted"
    ]


def test_mistakes_can_be_had_as_plain_values() -> None:
    with pytest.raises(ConfigMistakesError) as caught:
        read(GOOD.replace("1 ms", "soon"))
    (problem,) = caught.value.problems
    assert problem == Mistake(("time", "t_end"), problem.message, SourcePosition("c.yaml", 7, 15))
    assert problem.as_json() == {
        "key": "time.t_end",
        "message": "'soon' was found; a time greater than 0 is wanted, for example '1 ms'",
        "source": "c.yaml",
        "line": 7,
        "column": 15,
    }


def test_only_the_first_hundred_mistakes_are_shown() -> None:
    with pytest.raises(ConfigMistakesError) as caught:
        read("\n".join(f"key{i}: 1" for i in range(300)))
    assert len(caught.value.problems) > 300
    assert len(str(caught.value).splitlines()) == 101
    assert str(caught.value).endswith("more mistakes")


def test_python_data_means_what_the_file_means() -> None:
    data: dict[str, Any] = {
        "grid": {"shape": (np.int64(12), 10), "size": np.array([0.015, 0.0125])},
        "model": {"type": "heat", "material": "copper"},
        "initial": {"type": "gaussian", "amplitude": "100 K", "sigma": np.float64(2e-3)},
        "boundaries": {"*": {"type": "neumann"}, "x-": {"type": "dirichlet", "value": "300 K"}},
        "time": {"t_end": "1 ms"},
        "output": {"directory": Path("results/c"), "fields": None},
    }
    made = make_config(data, environ={})
    assert made == read(GOOD, "output.directory=results/c")
    assert data["grid"]["shape"] == (12, 10)  # the data is not changed
    assert (
        make_config({**data, "grid": GridSection(shape=(12, 10), size=(0.015, 0.0125))}, environ={})
        == made
    )
    data["checkpoint"] = {"every": Every(3.0, "wall")}
    assert make_config(data, environ={}).checkpoint.every == Every(3.0, "wall")


def test_mistakes_in_python_data_name_the_key_only() -> None:
    loop: dict[str, Any] = {}
    loop["grid"] = loop
    for data, told in (
        (
            {"grid": {"shape": [0]}},
            "grid.shape.0: 0 was found; a whole number greater than 0 is wanted",
        ),
        ({1: 2}, "a key is 1; keys are text"),
        (
            {"grid": {"shape": object()}},
            "grid.shape: an object of type object was found; a list of 1 to 3 entries",
        ),
        ({"title": "\ud800"}, "title: this text holds half of a character"),
        (loop, "does the data contain itself?"),
        ([1], "a section of keys and values is wanted at the top level"),
    ):
        with pytest.raises(ConfigMistakesError) as caught:
            make_config(data, environ={})  # type: ignore[arg-type]
        assert any(told in line for line in str(caught.value).splitlines())


def test_a_relative_input_file_in_python_data_belongs_to_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, _ = read_yaml(changed("initial", "initial: {type: file, path: a/../b.npy}"), "x")
    assert root is not None
    data = root.plain()
    assert make_config(data, base=tmp_path).resolved()["initial"]["path"] == str(tmp_path / "b.npy")
    monkeypatch.chdir(tmp_path)
    assert make_config(data).resolved()["initial"]["path"] == str(tmp_path / "b.npy")


FULL = """\
schema: 1
title: "yes: {no} # 'quoted' \\" 12 \\u2028 é"
grid: {shape: [12, 10, 9], spacing: [1 mm, 2.5e-3, 1 mm]}
model: {type: heat, material: copper, diffusivity: 111 mm^2/s, stencil: box-3d27p}
initial: {type: expression, expression: "T0 + exp(-(x/s)**2)*(y < Ly)", constants: {s: 1.5e-300, T0: 1}}
boundaries:
  "*": {type: robin, h: 2.5e1, ambient: 300 K}
  x: {type: periodic}
  y-: {type: neumann, flux: -3 kW/m^2}
time: {dt: 1e-9, t_end: 1 us}
compute: {devices: [cpu, cpu], method: cpu.plain, precision: float32, time_block: 4, threads: 2, shares: [0.1, 3]}
output:
  directory: "1e-5"
  fields: {every: 3 steps, compression: gzip}
  probes: [{at: [1 mm, 0, 0], every: 0.1 us, name: "1e5"}, {at: [0, 0, 0], every: 1}]
  statistics: {every: 1e-7}
  pictures: false
checkpoint: {every: 30 min wall, keep: 5, at_end: false}
run: {max_walltime: 2 h}
"""


@pytest.mark.parametrize("text", [GOOD, FULL])
def test_the_resolved_text_leads_back_to_the_equal_configuration(text: str) -> None:
    config = read(text)
    again = read_config(
        config.resolved_text(), name="checkpoint", base=Path("/elsewhere"), environ={}
    )
    assert again == config
    assert again.resolved_text() == config.resolved_text()
    assert make_config(config.resolved(), environ={}) == config


def test_the_environment_does_not_change_a_resolved_configuration() -> None:
    text = read(GOOD).resolved_text()
    assert read(text, TETRIS_SIM_THREADS="3", TETRIS_SIM_METHOD="x") == read(GOOD)


def test_the_resolved_text_is_plain_si_yaml() -> None:
    text = read(GOOD).resolved_text()
    assert "size: [0.015, 0.0125]" in text
    assert "value: 26.85" in text
    assert text.startswith("schema: 1\n")
    assert text.index("\nmodel:") < text.index("\ninitial:")
    assert "null" not in text


def test_the_physics_of_a_run_are_the_keys_that_shape_its_answer() -> None:
    physics = read(GOOD).physics()
    assert physics["grid.shape"] == [12, 10]
    assert physics["boundaries.x-.value"] == 26.85
    assert physics["compute.precision"] == "float64"
    assert {key.split(".")[0] for key in physics} == {
        "schema",
        "grid",
        "model",
        "initial",
        "boundaries",
        "compute",
    }
    assert [key for key in physics if key.startswith("compute")] == ["compute.precision"]


def test_a_difference_of_physics_is_told_key_by_key() -> None:
    old = read(GOOD)
    same = read(
        GOOD,
        "time.t_end=5",
        "output.fields.every=1 ms",
        "compute.threads=2",
        "title=other",
        "checkpoint.keep=7",
    )
    assert same.difference(old) == []
    new = read(
        GOOD,
        "grid.shape=[12, 11]",
        "initial={type: constant, value: 3}",
        "compute.precision=float32",
        "boundaries.x-.value=1",
    )
    assert new.difference(old) == [
        "grid.shape is [12, 11], and was [12, 10]",
        "initial.type is constant, and was gaussian",
        "initial.amplitude was 100.0, and is not given now",
        "initial.sigma was 0.002, and is not given now",
        "initial.background was 0.0, and is not given now",
        "boundaries.x-.value is 1.0, and was 26.85",
        "compute.precision is float32, and was float64",
        "initial.value is 3.0, and was not given before",
    ]
