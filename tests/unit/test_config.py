"""From YAML to checked numbers: what is read, what is refused and with which words, and what comes back out."""

from __future__ import annotations

import math
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tetris_sim.config import Config, load_config, make_config, read_config
from tetris_sim.config_errors import ConfigMistakesError, Mistake, Place
from tetris_sim.config_yaml import MOST_CHARACTERS, read_yaml
from tetris_sim.errors import ConfigError, ExitCode
from tetris_sim.problem import Problem
from tetris_sim.quantities import Every
from tetris_sim.schema import GridSection

GOOD = """\
grid: {shape: [12, 10], size: [15 mm, 12.5 mm]}
model: {type: heat, material: copper}
initial: {type: gaussian, amplitude: 100 K, sigma: 2 mm}
boundaries:
  "*": {type: neumann}
  x-: {type: dirichlet, value: 300 K}
time: {t_end: 1 ms}
"""


def read(text: str, *overrides: str, **environ: str) -> Config:
    base = Path("/nowhere")
    return read_config(textwrap.dedent(text), name="c.yaml", base=base, overrides=overrides, environ=environ)


def mistakes(text: str, *overrides: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigMistakesError) as caught:
        read(text, *overrides, **environ)
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    assert caught.value.exit_code == ExitCode.CONFIG
    return str(caught.value).splitlines()


def changed(line: str, new: str) -> str:
    """GOOD with the line that begins with `line` replaced."""
    lines = [new if each.startswith(line) else each for each in GOOD.splitlines()]
    assert lines != GOOD.splitlines()
    return "\n".join(lines) + "\n"


def test_a_good_configuration_becomes_si_numbers_and_a_problem() -> None:
    config = read(GOOD)
    assert config.grid.size == (0.015, 0.0125)
    assert config.resolved()["boundaries"]["x-"] == {"type": "dirichlet", "value": 26.85}
    assert config.resolved()["initial"]["amplitude"] == 100.0
    assert config.time.t_end == 1e-3
    problem = config.build()
    assert isinstance(problem, Problem)
    assert problem.grid.shape == (10, 12)


def test_all_mistakes_are_told_at_once_each_with_its_place() -> None:
    text = """\
    # a comment
    grid: {shape: [512, 0], size: [15 mm, 15 s], t_end: 3}
    model:
      type: heat
      material: coper
    initial:
      type: gausian
      sigma: 2
    boundaries:
      x-: {type: dirichlet, value: 20 C}
      y: periodic
      z: {type: neumann, fluxx: 1}
      w: {type: fixed, value: 1}
    time: {dt: atuo, cfl: true, t_end: 1}
    compute:
      devices: [cpu, tpu]
      threads: many
      shares: [1, -1]
      precison: float32
    output:
      directory: ${NOPE}/x
      fields: {every: 30 min wall}
      probes:
        - at: [1 mm, 2 s]
          every: 0 steps
        - {at: [1 mm], every: 1, name: "a b"}
    outputs: 3
    """
    told = mistakes(text, "time.steps=x", "foo", TETRIS_SIM_THREADS="4")
    assert [line for line in told if "model.material" not in line] == [
        "c.yaml:2:21: grid.shape.1: 0 was found; a whole number greater than 0 and of at most 1e+12 is wanted",
        "c.yaml:2:39: grid.size.1: '15 s' is a time; a length greater than 0 is wanted, for example '15 mm'",
        "c.yaml:2:46: grid.t_end: unknown key; t_end belongs under time",
        "c.yaml:7:9: initial.type: 'gausian' was found; gaussian, expression, constant, file or random is wanted "
        "(did you mean 'gaussian'?)",
        "c.yaml:10:32: boundaries.x-.value: '20 C' is an electric charge; a temperature is wanted, "
        "for example '20 degC' or '300 K'",
        "c.yaml:11:6: boundaries.y: 'periodic' was found; a section with a type "
        "(dirichlet, fixed, neumann, robin or periodic) is wanted; write {type: periodic}",
        "c.yaml:12:22: boundaries.z.fluxx: unknown key (did you mean 'flux'?); the keys here are type and flux",
        "c.yaml:13:3: boundaries.w: 'w' is not a face (x-, x+, y-, ..., x for both faces of an axis, * for the rest)",
        "c.yaml:14:12: time.dt: 'atuo' was found; auto or a time greater than 0 is wanted (did you mean 'auto'?)",
        "c.yaml:14:23: time.cfl: true was found; a number greater than 0 is wanted",
        "c.yaml:16:18: compute.devices.1: 'tpu' was found; cpu is wanted (did you mean 'cpu'?)",
        "c.yaml:17:12: compute.threads: 'many' was found; auto or a whole number greater than 0 and of at most 2.147e+09 is wanted",
        "c.yaml:18:15: compute.shares.1: -1 was found; a number greater than 0 is wanted",
        "c.yaml:19:3: compute.precison: unknown key (did you mean 'precision'?); the keys here are devices, method, "
        "precision, time_block, threads and shares",
        "c.yaml:21:14: output.directory: the environment variable NOPE is not set; set it, or write the path out",
        "c.yaml:22:19: output.fields.every: '30 min wall' is wall time, which is for checkpoints; "
        "an interval such as '1 ms' is wanted",
        "c.yaml:24:18: output.probes.0.at.1: '2 s' is a time; a length is wanted, for example '15 mm'",
        "c.yaml:25:14: output.probes.0.every: '0 steps' was found; a whole number of steps, 1 or more, is wanted",
        "c.yaml:26:36: output.probes.1.name: 'a b' was found; a name of at most 64 letters, digits, _ and - is wanted",
        "c.yaml:27:1: outputs: unknown key (did you mean 'output'?); the keys here are schema, title, grid, initial, "
        "boundaries, time, compute, output, checkpoint, run and model",
        "--set foo: key=value is wanted, for example time.t_end=2",
        "--set time.steps=x: time.steps: 'x' was found; a whole number of at least 0 is wanted",
    ]  # fmt: skip
    (material,) = (line for line in told if "model.material" in line)
    assert material.startswith("c.yaml:5:13: model.material: 'coper' is not in the table (did you mean 'copper'?)")


@pytest.mark.parametrize(
    ("line", "new", "told"),
    [
        ("grid", "grid: {shape: [12, 10], size: [15 mm, 12.5 mm], spacing: [1, 1]}",
         "c.yaml:1:1: grid: size and spacing are both given; one follows from the other, so give one"),
        ("grid", "grid: {size: [1, 1]}", "c.yaml:1:1: grid.shape: missing; a list of 1 to 3 entries, each a whole "
         "number greater than 0 and of at most 1e+12 is wanted"),
        ("grid", "grid: [12, 10]", "c.yaml:1:1: grid: a list of 2 was found; a section of keys and values is wanted"),
        ("grid", "grid: {shape: [12, 10], size: [15 mm, 1e-40]}", "c.yaml:1:39: grid.size.1: 10 points over 1e-40 m "
         "were found; a spacing above 1e-30 m and a length below 1e+30 m are wanted"),
        ("  x-", "  z-: {type: fixed, value: 1}",
         "c.yaml:6:3: boundaries.z-: the grid has 2 axes (x and y), so there is no face z-"),
        ("  x-", "  x-: {type: periodic}", "c.yaml:6:3: boundaries.x-: x- and x+ are joined if periodic, so both or "
         "neither must be; write x: {type: periodic} for both"),
        ('  "*"', "  y: {type: neumann}",
         "c.yaml:4:1: boundaries: nothing is said about x+; name each face, its axis, or '*' for the rest"),
        ("initial", "initial: {type: gaussian, amplitude: 1, sigma: 2 mm, center: [3 mm]}",
         "c.yaml:3:54: initial.center: a list of 1 was found; the grid has 2 axes (x and y), so list 2 coordinates"),
        ("initial", "initial: {type: gaussian, amplitude: 1, sigma: 2 mm, center: [3 mm, 13 mm]}",
         "c.yaml:3:69: initial.center.1: y = 0.013 m is outside the box, which reaches from 0 to 0.0125 m"),
        ("initial", "initial: {type: expression, expression: x + sn(y)}",
         "c.yaml:3:45: initial.expression: unknown function 'sn' (did you mean 'sin'?)"),
        ("initial", "initial: {type: expression, expression: 'x + z'}",
         "c.yaml:3:46: initial.expression: unknown name 'z'; known are Lx, Ly, e, pi, x, y"),
        ("initial", "initial: {type: expression, expression: x, constants: {Lz: 3}}",
         "c.yaml:3:56: initial.constants.Lz: 'Lz' already means a position or a length; choose another name"),
        ("initial", "initial: {type: expression, expression: x, constants: {sin: 3}}",
         "c.yaml:3:56: initial.constants.sin: 'sin' already means something in expressions; choose another name"),
        ("initial", "initial: {sigma: 2}", "c.yaml:3:1: initial.type: missing; gaussian, expression, constant, file or "
         "random is wanted"),
        ("initial", "initial: {type: constant, value: 2, sigma: 3}",
         "c.yaml:3:37: initial.sigma: unknown key; sigma belongs under initial (type: gaussian)"),
        ("initial", "initial:", "c.yaml:3:1: initial: missing; a section with a type "
         "(gaussian, expression, constant, file or random) is wanted"),
        ("time", "time: {t_end: 1 ms}\noutput: {probes: [{at: [1 mm, 13 mm], every: 1}]}",
         "c.yaml:8:31: output.probes.0.at.1: y = 0.013 m is outside the box, which reaches from 0 to 0.0125 m"),
        ("time", "time: {t_end: 1 ms}\ncompute: {devices: [cpu, cpu], shares: [1, 2, 3]}", "c.yaml:8:32: "
         "compute.shares: a list of 3 was found; compute.devices names 2, so list one share for each"),
        ("time", "time: {t_end: 1 ms}\ncompute: {shares: [1, 2]}",
         "c.yaml:8:11: compute.shares: a list of 2 was found; compute.devices names 1, so list one share for each"),
        ("time", "time: {t_end: 1 ms}\ncompute: {devices: [cpu, cpu], threads: 1}",
         "c.yaml:8:41: compute.threads: 1 was found; compute.devices names 2 teams, and each needs a thread"),
        ("time", "time: {t_end: 1 h, dt: 1 ns}\noutput: {fields: {every: 1 us}}", "c.yaml:8:26: output.fields.every: "
         "every 1e-06 s makes 3.6e+09 files, one per output time; at most 1000000 are allowed"),
        ("time", "time: {steps: 10}\ncheckpoint: {every: 11 steps, at_end: false}", "c.yaml:8:21: checkpoint.every: "
         "every 11 steps is longer than the run, and at_end is false, so there would never be a checkpoint; "
         "shorten it or set checkpoint.at_end: true"),
        ("model", "model: {type: heat, material: copper, stencil: heat-3d}", "c.yaml:2:48: model.stencil: 'heat-3d' is "
         "no Laplacian of a grid of 2 axes; allowed are heat-2d, star-2d9p, star-2d13p, box-2d9p"),
        ("model", "model: {type: heet}",
         "c.yaml:2:15: model.type: 'heet' was found; heat or stencil is wanted (did you mean 'heat'?)"),
        ("time", "time: {t_end: 1 ms, steps: 3}", "c.yaml:7:1: time: give either t_end or steps"),
        ("time", "schema: 2\ntime: {t_end: 1 ms}", "c.yaml:7:9: schema: 2 was found; 1 is wanted"),
    ],
)  # fmt: skip
def test_each_mistake_is_told_in_plain_words_at_its_place(line: str, new: str, told: str) -> None:
    (only,) = mistakes(changed(line, new))
    assert only.startswith(told)


def test_numbers_must_fit_into_single_precision_if_that_is_asked_for() -> None:
    text = GOOD + "compute: {precision: float32}\n"
    read(text)
    (only,) = mistakes(text.replace("value: 300 K", "value: 1e39"))
    assert only.startswith("c.yaml:6:32: boundaries.x-.value: 1e+39 was found; with compute.precision: float32")
    assert len(mistakes(text.replace("amplitude: 100 K", "amplitude: 1e39, background: -1e39"))) == 2


def test_checks_between_sections_are_made_besides_mistakes_inside_of_others() -> None:
    told = mistakes(changed("  x-", "  z: {type: periodic}").replace("t_end: 1 ms", "t_end: soon"))
    assert [line.split(": ")[1] for line in told] == ["boundaries.z", "time.t_end"]
    told = mistakes(changed("model", "model: {type: heat, material: copper, stencil: heat-1d}").replace("1 ms", "soon"))
    assert [line.split(": ")[1] for line in told] == ["model.stencil", "time.t_end"]


# ---- the YAML text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "c.yaml:1:1: this is empty; a configuration is wanted, and `init` writes one"),
        ("# only a comment\n", "c.yaml:1:1: this is empty"),
        ("- 1\n- 2\n", "c.yaml:1:1: a section of keys and values is wanted at the top level"),
        ("just text", "c.yaml:1:1: a section of keys and values is wanted at the top level"),
        ("a: [1, 2\nb: 3", "c.yaml:2:2: this is not YAML: "),
        ("a: b: c", "c.yaml:1:5: this is not YAML: there is a second ': ' here; put text that holds ': ' into quotes"),
        ("a:\n\tb: 1", "c.yaml:2:1: this is not YAML: there is a tab here; indent with blanks"),
        ("a: '\x00'", "c.yaml:1:5: the character U+0000 is not allowed in YAML"),
        ("a: 1\n---\nb: 2", "c.yaml:2:1: a second document begins here; a configuration is one document"),
        ("[" * 1000, "c.yaml:1:33: this is nested too deeply; at most 32 levels are allowed"),
        ("a: &x [*x]", "c.yaml:1:8: *x stands for nothing, or for something that contains it"),
        ("a: *x", "c.yaml:1:4: *x stands for nothing"),
        ("? [1]\n: 2", "c.yaml:1:3: a key must be text, not a list or a section"),
        ("<<: {a: 1}", "c.yaml:1:1: merging with << is not part of YAML 1.2; write the keys out"),
        ('a: "\\Uffffffff"', "c.yaml: this is not YAML"),
        ("x" * (MOST_CHARACTERS + 1), f"c.yaml: the text has {MOST_CHARACTERS + 1} characters; a configuration has at"),
    ],
)  # fmt: skip
def test_text_that_cannot_be_a_configuration_is_refused_at_its_place(text: str, told: str) -> None:
    (only,) = mistakes(text)
    assert only.startswith(told)


def test_a_key_given_twice_is_told_with_both_places() -> None:
    text = GOOD.replace("time: {t_end: 1 ms}", "time:\n  t_end: 1 ms\n  t_end: 2 ms\n")
    assert mistakes(text) == ["c.yaml:9:3: 't_end' is given twice; the first is on line 8, column 3"]
    told = mistakes(text.replace("sigma: 2 mm", "sigma: 2 s"))
    assert [line.split(": ")[0] for line in told] == ["c.yaml:3:52", "c.yaml:9:3"]


def test_a_tag_is_told_and_nothing_is_made_of_it() -> None:
    told = mistakes(GOOD.replace("material: copper", "material: !!python/object/apply:os.getcwd []"))
    assert told[1] == (
        "c.yaml:2:31: the tag 'tag:yaml.org,2002:python/object/apply:os.getcwd' is not allowed; write plain values"
    )


def test_aliases_mean_what_they_stand_for_and_their_mistakes_have_a_place() -> None:
    text = GOOD.replace("{type: neumann}", "&cold {type: dirichlet, value: 1}").replace(
        "x-: {type: dirichlet, value: 300 K}", "y: *cold"
    )
    assert read(text).resolved()["boundaries"] == {key: {"type": "dirichlet", "value": 1.0} for key in ("*", "y")}
    told = mistakes(text.replace("value: 1", "value: 1 m"))
    assert [line.split(": ")[:2] for line in told] == [
        ["c.yaml:5:39", "boundaries.*.value"],
        ["c.yaml:5:39", "boundaries.y.value"],
    ]


def test_a_small_text_cannot_mean_a_huge_one() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    (only,) = mistakes("\n".join(lines))
    assert "more than 100000 values with all aliases written out" in only


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-7", -7), ("+3", 3), ("007", 7), ("0o17", 15), ("0x1F", 31), ("1e3", 1000.0), (".5e1", 5.0),
        ("1.", 1.0), ("-.5", -0.5), ("true", True), ("False", False), ("~", None), ("null", None), ("", None),
        ("yes", "yes"), ("on", "on"), ("1_000", "1_000"), ("12:30", "12:30"), ("2001-01-01", "2001-01-01"),
        ("'1'", "1"), ('"true"', "true"), (".inf", math.inf), ("-.INF", -math.inf), ("0o8", "0o8"), ("1e", "1e"),
        ("9" * 5000, math.inf), ("0x" + "f" * 5000, math.inf), ("x y", "x y"), ('"\\ud83d\\ude00"', "😀"),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    root, told = read_yaml(f"a: {text}", "x")
    assert root is not None
    assert root.plain() == {"a": value}
    assert type(root.plain()["a"]) is type(value)
    assert told == []


def test_places_are_lines_and_characters_not_bytes() -> None:
    text = GOOD.replace("copper", "'ü', größe: 3")
    told = mistakes(text)
    assert any(line.startswith("c.yaml:2:36: model.größe: unknown key") for line in told)


def test_a_mistake_in_a_long_expression_points_at_the_line_it_begins_on() -> None:
    folded = "initial:\n  type: expression\n  expression: >\n    x +\n    qq"
    (only,) = mistakes(changed("initial", folded))
    assert only.startswith("c.yaml:5:15: initial.expression: unknown name 'qq'")
    assert only.endswith("(character 5 of the expression)")


# ---- files


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


def test_a_relative_input_file_belongs_to_the_configuration_wherever_both_are(tmp_path: Path) -> None:
    text = changed("initial", "initial: {type: file, path: data/start.npy}")
    for folder in (tmp_path / "here", tmp_path / "there"):
        (folder / "data").mkdir(parents=True)
        np.save(folder / "data" / "start.npy", np.zeros((10, 12)))
        (folder / "c.yaml").write_text(text)
        config = load_config(folder / "c.yaml", environ={})
        assert config.resolved()["initial"]["path"] == str(folder / "data" / "start.npy")
        config.build()


def test_variables_are_replaced_in_paths_only() -> None:
    text = changed("initial", "initial: {type: file, path: '${DATA}/start.npy'}") + "title: ${DATA}\n"
    config = read(text + "output: {directory: '${OUT}/${RUN}'}\n", DATA="/data", OUT="o", RUN="7")
    assert config.resolved()["initial"]["path"] == "/data/start.npy"
    assert config.output.directory == "o/7"
    assert config.title == "${DATA}"
    (only,) = mistakes(text)
    assert only.endswith("initial.path: the environment variable DATA is not set; set it, or write the path out")
    assert "holds ${...} itself" in mistakes(text, DATA="${X}")[0]
    assert "a path is wanted" in mistakes(GOOD + "output: {directory: '${E}'}\n", E="")[0]


def test_an_empty_section_with_defaults_means_the_defaults() -> None:
    assert read(GOOD + "output:\n  # fields: {every: 1}\ncompute:\n") == read(GOOD)


# ---- what is said outside of the file


def test_set_counts_more_than_the_file_and_the_file_more_than_the_environment() -> None:
    environ = {"TETRIS_SIM_THREADS": "3", "TETRIS_SIM_METHOD": "cpu.plain", "TETRIS_SIM_DEVICES": "cpu, cpu"}
    config = read(GOOD, **environ)
    assert (config.compute.threads, config.compute.method, config.compute.devices) == (3, "cpu.plain", ("cpu", "cpu"))
    config = read(GOOD + "compute: {threads: 5}\n", **environ)
    assert (config.compute.threads, config.compute.method) == (5, "cpu.plain")
    config = read(GOOD + "compute: {threads: 5}\n", "compute.threads=7", "compute.threads=8", **environ)
    assert config.compute.threads == 8
    assert read(GOOD, TETRIS_SIM_THREADS="") == read(GOOD)


def test_set_takes_yaml_values_and_reaches_into_lists() -> None:
    text = GOOD + "output: {probes: [{at: [1 mm, 2 mm], every: 1}]}\n"
    config = read(text, "output.probes.0.at=[3 mm, 4 mm]", "output.probes.1={at: [1e-3, 0], every: 2 steps}")
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
        "TETRIS_SIM_THREADS: compute.threads: 'many' was found; auto or a whole number greater than 0 and of at most 2.147e+09 is wanted"
    ]


def test_mistakes_can_be_had_as_plain_values() -> None:
    with pytest.raises(ConfigMistakesError) as caught:
        read(GOOD.replace("1 ms", "soon"))
    (problem,) = caught.value.problems
    assert problem == Mistake(("time", "t_end"), problem.message, Place("c.yaml", 7, 15))
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


# ---- Python data


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
    assert make_config({**data, "grid": GridSection(shape=(12, 10), size=(0.015, 0.0125))}, environ={}) == made
    data["checkpoint"] = {"every": Every(3.0, "wall")}
    assert make_config(data, environ={}).checkpoint.every == Every(3.0, "wall")


def test_mistakes_in_python_data_name_the_key_only() -> None:
    loop: dict[str, Any] = {}
    loop["grid"] = loop
    for data, told in (
        (
            {"grid": {"shape": [0]}},
            "grid.shape.0: 0 was found; a whole number greater than 0 and of at most 1e+12 is wanted",
        ),
        ({1: 2}, "a key is 1; keys are text"),
        ({"grid": {"shape": object()}}, "grid.shape: an object of type object was found; a list of 1 to 3 entries"),
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


# ---- what comes back out


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
    again = read_config(config.resolved_text(), name="checkpoint", base=Path("/elsewhere"), environ={})
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
    assert {key.split(".")[0] for key in physics} == {"schema", "grid", "model", "initial", "boundaries", "compute"}
    assert [key for key in physics if key.startswith("compute")] == ["compute.precision"]


def test_a_difference_of_physics_is_told_key_by_key() -> None:
    old = read(GOOD)
    same = read(
        GOOD, "time.t_end=5", "output.fields.every=1 ms", "compute.threads=2", "title=other", "checkpoint.keep=7"
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
