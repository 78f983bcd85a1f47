"""What is wrong with a configuration is told all at once, in plain words, where it was written."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.config_cases import GOOD, changed, mistakes, read
from tetris_sim.model.problem import Problem


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
        "c.yaml:2:21: grid.shape.1: 0 was found; a whole number greater than 0 is wanted",
        (
            "c.yaml:2:39: grid.size.1: '15 s' is a time; a length greater than 0 is wanted, for "
            "example '15 mm'"
        ),
        "c.yaml:2:46: grid.t_end: unknown key; t_end belongs under time",
        "c.yaml:7:9: initial.type: 'gausian' was found; gaussian, expression, constant, file, "
        "random or run is wanted (did you mean 'gaussian'?)",
        "c.yaml:10:32: boundaries.x-.value: '20 C' is an electric charge "
        "(did you mean '20 degC'? C is the coulomb); a temperature is wanted, "
        "for example '20 degC' or '300 K'",
        "c.yaml:11:6: boundaries.y: 'periodic' was found; a section with a type "
        "(dirichlet, temperature, fixed, neumann, heat_flux, insulated, symmetry, robin, "
        "convection, radiation, periodic, no_flux, clamped, supported, free, curvature or "
        "extrapolate) is wanted; write {type: periodic}",
        (
            "c.yaml:12:22: boundaries.z.fluxx: unknown key (did you mean 'flux'?); the keys here "
            "are where, type, flux and conductivity"
        ),
        (
            "c.yaml:13:3: boundaries.w: 'w' is not a face (x-, x+, y-, ..., x for both faces of an "
            "axis, * for the rest)"
        ),
        (
            "c.yaml:14:12: time.dt: 'atuo' was found; auto or a time greater than 0 is wanted (did "
            "you mean 'auto'?)"
        ),
        "c.yaml:14:23: time.cfl: true was found; a number greater than 0 is wanted",
        (
            "c.yaml:16:18: compute.devices.1: 'tpu' was found; cpu, gpu:NUMBER or simulated:NUMBER "
            "is wanted"
        ),
        (
            "c.yaml:17:12: compute.threads: 'many' was found; auto or a whole number greater than "
            "0 is wanted"
        ),
        "c.yaml:18:15: compute.shares.1: -1 was found; a number greater than 0 is wanted",
        "c.yaml:19:3: compute.precison: unknown key (did you mean 'precision'?); the keys here "
        "are devices, method, parameters, tuning_budget, precision, time_block, threads, "
        "reserve_cores, shares, share_gpus, gpu_messages, gpu_memory, on_device_failure and "
        "simulated",
        (
            "c.yaml:21:14: output.directory: the environment variable NOPE is not set; set it, or "
            "write the path out"
        ),
        "c.yaml:22:19: output.fields.every: '30 min wall' is wall time, which is for checkpoints; "
        "an interval such as '1 ms' is wanted",
        (
            "c.yaml:24:18: output.probes.0.at.1: '2 s' is a time; a length is wanted, for example "
            "'15 mm'"
        ),
        (
            "c.yaml:25:14: output.probes.0.every: '0 steps' was found; a whole number of steps, 1 "
            "or more, is wanted"
        ),
        (
            "c.yaml:26:36: output.probes.1.name: 'a b' was found; a name of at most 64 letters, "
            "digits, _ and - is wanted"
        ),
        "c.yaml:27:1: outputs: unknown key (did you mean 'output'?); the keys here are schema, "
        "title, grid, initial, boundaries, time, control, compute, output, checkpoint, run and model",
        "--set foo: key=value is wanted, for example time.t_end=2",
        "--set time.steps=x: time.steps: 'x' was found; a whole number of at least 0 is wanted",
    ]  # fmt: skip
    (material,) = (line for line in told if "model.material" in line)
    assert material.startswith(
        "c.yaml:5:13: model.material: 'coper' is not in the table of materials (did you mean 'copper'?)"
    )


@pytest.mark.parametrize(
    ("line", "new", "told"),
    [
        ("grid", "grid: {shape: [12, 10], size: [15 mm, 12.5 mm], spacing: [1, 1]}",
         "c.yaml:1:1: grid: size and spacing are both given; one follows from the other, so give one"),
        ("grid", "grid: {size: [1, 1]}", "c.yaml:1:1: grid.shape: missing; a list of 1 to 3 entries, each a whole "
         "number greater than 0 is wanted"),
        ("grid", "grid: [12, 10]", "c.yaml:1:1: grid: a list of 2 was found; a section of keys and values is wanted"),
        ("grid", "grid: {shape: [12, 10], size: [15 mm, 1e-40]}", "c.yaml:1:39: grid.size.1: 10 points over 1e-40 m "
         "were found; a spacing above 1e-30 m and a length below 1e+30 m are wanted"),
        ("  x-", "  z-: {type: fixed, value: 1}",
         "c.yaml:6:3: boundaries.z-: the grid has 2 axes (x and y), so there is no face z-"),
        ("  x-", "  x-: {type: periodic}", "c.yaml:6:3: boundaries.x-: x- and x+ are joined if periodic, so both or "
         "neither must be; write x: {type: periodic} for both"),
        ('  "*"', "  y: {type: neumann}",
         "c.yaml:4:1: boundaries: no condition is given for x+; name each face, its axis, or '*' for the rest"),
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
        ("initial", "initial: {sigma: 2}", "c.yaml:3:1: initial.type: missing; gaussian, expression, constant, file, "
         "random or run is wanted"),
        ("initial", "initial: {type: constant, value: 2, sigma: 3}",
         "c.yaml:3:37: initial.sigma: unknown key; sigma belongs under initial (type: gaussian)"),
        ("initial", "initial:", "c.yaml:3:1: initial: missing; a section with a type "
         "(gaussian, expression, constant, file, random or run) is wanted"),
        ("time", "time: {t_end: 1 ms}\noutput: {probes: [{at: [1 mm, 13 mm], every: 1}]}",
         "c.yaml:8:31: output.probes.0.at.1: y = 0.013 m is outside the box, which reaches from 0 to 0.0125 m"),
        ("time", "time: {t_end: 1 ms}\ncompute: {devices: [cpu, cpu], shares: [1, 2, 3]}", "c.yaml:8:32: "
         "compute.shares: a list of 3 was found; compute.devices names 2, so list one share for each"),
        ("time", "time: {t_end: 1 ms}\ncompute: {shares: [1, 2]}",
         "c.yaml:8:11: compute.shares: a list of 2 was found; compute.devices names 1, so list one share for each"),
        ("time", "time: {t_end: 1 ms}\ncompute: {devices: [cpu, cpu], threads: 1}",
         "c.yaml:8:41: compute.threads: 1 was found; compute.devices names 2 teams, and each needs a thread"),
        ("time", "time: {t_end: 1 ms}\ncompute: {parameters: {tile: 3}}", "c.yaml:8:11: compute.parameters: parameters "
         "belong to one method, and compute.method is auto; name the method, or leave them out"),
        ("time", "time: {t_end: 1 ms}\ncompute: {method: cpu.plain, parameters: {tile: 3.5}}",
         "c.yaml:8:49: compute.parameters.tile: 3.5 was found; a whole number of at least 0 is wanted"),
        ("time", "time: {t_end: 1 ms}\ncompute: {method: cpu.plain, parameters: 3}",
         "c.yaml:8:42: compute.parameters: 3 was found; a section of keys and values is wanted"),
        ("time", "time: {t_end: 1 ms}\ncompute: {tuning_budget: -1 s}", "c.yaml:8:26: compute.tuning_budget: "
         "'-1 s' was found; auto or a time of 0 or more is wanted"),
        ("time", "time: {t_end: 1 ms}\ncompute: {reserve_cores: 1, threads: 3}", "c.yaml:8:26: compute.reserve_cores: "
         "1 was found; compute.threads says already how many cores are used, so leave one of the two out"),
        ("time", "time: {t_end: 1 h, dt: 1 ns}\noutput: {fields: {every: 1 us}}", "c.yaml:8:26: output.fields.every: "
         "every 1e-06 s makes 3.6e+09 files, one per output time; at most 1000000 are allowed"),
        ("time", "time: {steps: 10}\ncheckpoint: {every: 11 steps, at_end: false}", "c.yaml:8:21: checkpoint.every: "
         "every 11 steps is longer than the run, and at_end is false, so there would never be a checkpoint; "
         "shorten it or set checkpoint.at_end: true"),
        ("model", "model: {type: heat, material: copper, stencil: heat-3d}", "c.yaml:2:48: model.stencil: 'heat-3d' is "
         "no Laplacian of a grid of 2 axes; allowed are heat-2d, star-2d9p, star-2d13p, box-2d9p"),
        ("model", "model: {type: heet}",
         "c.yaml:2:15: model.type: 'heet' was found; heat, stencil or pde is wanted (did you mean 'heat'?)"),
        ("grid", "grid: {shape: [16.5]}", "c.yaml:1:16: grid.shape.0: 16.5 was found; a whole number greater "
         "than 0 is wanted"),
        ("grid", "grid: {shape: [0]}", "c.yaml:1:16: grid.shape.0: 0 was found; a whole number greater than 0 is wanted"),
        ("grid", "grid: {shape: []}", "c.yaml:1:8: grid.shape: an empty list was found; a list of 1 to 3 entries, each "
         "a whole number greater than 0 is wanted"),
        ("grid", "grid: {shape: [12, 9e15]}", "c.yaml:1:20: grid.shape.1: 9000000000000000.0 was found; "
         "at most 1e+12 is allowed"),
        ("time", "time: {t_end: 1 ms}\ncompute: {threads: 3000000000}",
         "c.yaml:8:20: compute.threads: 3000000000 was found; at most 2.14748e+09 is allowed"),
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
    assert only.startswith(
        "c.yaml:6:32: boundaries.x-.value: 1e+39 was found; with compute.precision: float32"
    )
    assert len(mistakes(text.replace("amplitude: 100 K", "amplitude: 1e39, background: 1e39"))) == 2
    half = text.replace("float32", "float16")
    assert read(half).build().dtype == np.float16
    (only,) = mistakes(half.replace("value: 300 K", "value: 66000"))
    assert only.endswith(
        "66000 was found; with compute.precision: float16 numbers reach to 65504 only"
    )


def test_checks_between_sections_are_made_besides_mistakes_inside_of_others() -> None:
    told = mistakes(changed("  x-", "  z: {type: periodic}").replace("t_end: 1 ms", "t_end: soon"))
    assert [line.split(": ")[1] for line in told] == ["boundaries.z", "time.t_end"]
    told = mistakes(
        changed("model", "model: {type: heat, material: copper, stencil: heat-1d}").replace(
            "1 ms", "soon"
        )
    )
    assert [line.split(": ")[1] for line in told] == ["model.stencil", "time.t_end"]
