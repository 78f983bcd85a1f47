"""Noise in equations: variances of Ornstein and Uhlenbeck and of a stochastic heat equation, Ito
and Stratonovich, orders of Euler-Maruyama and Milstein, and the same bits for any division.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest

from tests.physics.test_pde_wholes import solved
from tests.support.config_cases import read
from tetris_sim.__main__ import main
from tetris_sim.apps.pde.wholes import normal_numbers
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.errors import ConfigError
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod as GpuPlain
from tetris_sim.model.grid import Grid
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.checkpoint import problem_digest

Numbers = npt.NDArray[Any]

TEXT = """\
grid: {{shape: [{n}, {m}], spacing: [0.5, 0.5]}}
model:
  type: pde
  noise: {calculus}
  fields: {{u: {{equation: "{formula}", initial: {{type: constant, value: {start}}}}}}}
boundaries: {{"*": {{type: periodic}}}}
time: {{steps: {steps}, dt: {dt}, scheme: {scheme}}}
"""


def text_of(formula: str, **given: Any) -> str:
    usual = {"n": 64, "m": 64, "calculus": "ito", "start": 0, "steps": 40, "dt": 0.05}
    return TEXT.format(**{**usual, "scheme": "euler", "formula": formula, **given})


def test_numbers_are_normal_and_independent() -> None:
    numbers = normal_numbers("@noise7", Grid((64, 64), (1.0, 1.0), (0.5, 0.5)))
    box = ((0, 64), (0, 64))
    made = np.stack([numbers(box, step) for step in range(50)])
    assert made.mean() == pytest.approx(0, abs=4 / np.sqrt(made.size))
    assert made.var() == pytest.approx(1, abs=4 * np.sqrt(2 / made.size))
    assert (made**4).mean() == pytest.approx(3, abs=4 * np.sqrt(96 / made.size))
    for axis in range(3):
        both = (made * np.roll(made, 1, axis)).mean()
        assert both == pytest.approx(0, abs=4 / np.sqrt(made.size))
    # A part has the numbers of the whole, and another seed has others.
    part = numbers(((5, 9), (60, 64)), 3)
    np.testing.assert_array_equal(part, made[3, 5:9, 60:])
    other = normal_numbers("@noise8", Grid((64, 64), (1.0, 1.0), (0.5, 0.5)))(box, 3)
    assert abs((other * made[3]).mean()) < 4 / 64


@pytest.mark.parametrize("scheme", ["euler", "milstein"])
def test_ornstein_and_uhlenbeck_have_their_variance(scheme: str) -> None:
    # u' = (1 - k h) u + s sqrt(h) N with s^2 = variance/volume: the variance is a geometric series.
    k, h, variance = 1.5, 0.05, 0.3
    found = solved(read(text_of(f"-{k}*u + noise({variance}, 3)", scheme=scheme)).build())
    series = sum((1 - k * h) ** (2 * n) for n in range(40))
    expected = variance / 0.25 * h * series
    assert found.mean() == pytest.approx(0, abs=4 * np.sqrt(expected / 64**2))
    assert found.var() == pytest.approx(expected, rel=4 * np.sqrt(2) / 64)
    # Near that of the continuous process, which 2 k s^2 is.
    assert expected == pytest.approx(variance / 0.25 / (2 * k), rel=0.06)


def test_a_stochastic_heat_equation_has_the_variance_of_each_wave() -> None:
    n, h, steps = 128, 0.05, 400
    found = solved(
        read(text_of("laplace(u) - 0.2*u + noise(2, 1)", n=n, m=64, steps=steps)).build()
    )
    waves = np.abs(np.fft.fft2(found[0])) ** 2 / found[0].size
    ky, kx = (2 * np.pi * np.fft.fftfreq(m) for m in (64, n))
    rates = 0.2 + (4 - 2 * np.cos(ky)[:, None] - 2 * np.cos(kx)) / 0.25
    kept = (1 - rates * h) ** 2
    expected = 2 / 0.25 * h * (1 - kept**steps) / (1 - kept)
    # In bands of waves from long to short ones.
    order = np.argsort(rates, axis=None)
    for band in np.array_split(order, 8):
        share = (waves.ravel()[band] / expected.ravel()[band]).mean()
        assert share == pytest.approx(1, abs=4 * np.sqrt(2 / band.size))


def brownian(h: float, steps: int, seed: int = 5) -> Numbers:
    """The path of every cell, from the numbers that a run has."""
    numbers = normal_numbers(f"@noise{seed}", Grid((64, 64), (0.5, 0.5), (0.25, 0.25)))
    box = ((0, 64), (0, 64))
    return np.asarray(np.sqrt(h) * sum(numbers(box, step) for step in range(steps)))


def error(scheme: str, calculus: str, steps: int) -> float:
    """The root of the mean square error of du = u/2 dt + 0.6 u dW at 1, along each path."""
    text = text_of(
        *("0.5*u + u*noise(0.36*0.25, 5)",),
        scheme=scheme,
        calculus=calculus,
        steps=steps,
        dt=1 / steps,
        start=1,
    )
    found = solved(read(text, "model.allow_growth=true").build())[0]
    drift = 0.5 - (0.18 if calculus == "ito" else 0)
    exact = np.exp(drift + 0.6 * brownian(1 / steps, steps))
    return float(np.sqrt(((found - exact) ** 2).mean()))


@pytest.mark.parametrize("calculus", ["ito", "stratonovich"])
def test_paths_are_followed_with_the_order_of_the_scheme(calculus: str) -> None:
    for scheme, order in (("euler", 0.5), ("milstein", 1.0)):
        coarse, fine = error(scheme, calculus, 32), error(scheme, calculus, 256)
        assert np.log2(coarse / fine) / 3 == pytest.approx(order, abs=0.12), scheme
        assert fine < 0.1


def test_means_tell_ito_from_stratonovich() -> None:
    for calculus, rate in (("ito", 0.0), ("stratonovich", 0.18)):
        text = text_of("u*noise(0.36*0.25, 5)", calculus=calculus, start=1, steps=50, dt=0.02)
        found = solved(read(text, "model.allow_growth=true").build())[0]
        spread = np.exp(rate) * np.sqrt(np.exp(0.36) - 1) / 64
        assert found.mean() == pytest.approx(np.exp(rate), abs=4 * spread)


DIVIDED = text_of("div_grad(1 + x, u) + dx(noise(0.1, 2)) - u**3*noise(1 + y, 4)", n=26, m=13)


def test_any_division_and_a_gpu_have_the_same_bits() -> None:
    text = DIVIDED.replace("periodic", "neumann").replace("dt: 0.05", "dt: 0.001")
    problem = read(text, "model.allow_growth=true").build()
    assert not problem.system.is_local
    whole = solved(problem)
    assert whole.std() > 0.01
    for workers in (2, 3):
        np.testing.assert_array_equal(solved(problem, workers=workers), whole)

    from tests.support.emulator.emulation import COMPILER, NO_COMPILER

    if COMPILER is None:
        pytest.skip(NO_COMPILER)
    from tests.support.emulator.host_gpu import HostGpu

    team, found = ThreadTeam(1), []
    for method, device in ((METHODS[-1], team), (GpuPlain(), HostGpu())):
        stepper: Any = method.prepare(problem, Slab.whole(problem.grid), {}, device)
        stepper.load(problem.initial, 7)
        for step in range(7, 10):
            stepper.substep(problem.time(step), problem.dt)
        found.append(stepper.interior())
        stepper.close()
    team.close()
    np.testing.assert_array_equal(*found)


def test_a_run_that_is_continued_has_the_same_noise(tmp_path: Path) -> None:
    folder, path = tmp_path / "results", tmp_path / "c.yaml"
    text = text_of("laplace(u)/9 + u*noise(1, 1) + noise(1, 2)", n=16, m=9, scheme="euler")
    path.write_text(text + f"output: {{directory: {folder}}}\ncheckpoint: {{every: 15 steps}}\n")

    def last(*options: str) -> Numbers:
        assert main(["run", str(path), *options]) == 0
        kept = sorted((folder / "checkpoints").glob("*.h5"))[-1]
        with h5py.File(kept, "r") as file:
            found: Numbers = file["fields"]["u"][...]
        kept.unlink()
        return found

    whole = last()
    np.testing.assert_array_equal(last("--resume", "auto"), whole)


@pytest.mark.parametrize(
    ("formula", "given", "told"),
    [
        ("-u + noise(1, 0)", {"scheme": "rk4"}, "advanced by euler .* or milstein"),
        ("-u + noise(1, 0.5)", {}, "the seed of noise"),
        ("-u + noise(1, u)", {}, "the seed of noise"),
        ("mean(noise(1, 0)) - u", {}, "noise in integral, mean, max or min"),
        ("dx(u*noise(1, 0))", {"scheme": "milstein"}, "noise in an operator"),
        ("dx(u*noise(1, 0))", {"calculus": "stratonovich"}, "noise in an operator"),
        ("sin(noise(1, 0))", {"scheme": "milstein"}, "noise in an operator, in a function"),
        ("u*noise(1, 0) + noise(1, 1)", {"scheme": "milstein"}, "noises that commute"),
    ],
)
def test_what_cannot_be_done_is_told(formula: str, given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read(text_of(formula, **given), "model.allow_growth=true").build()


def test_another_seed_is_another_problem() -> None:
    texts = [text_of(f"-u + noise(1, {seed})", n=8, m=8) for seed in (0, 1)]
    assert problem_digest(read(texts[0]).build()) != problem_digest(read(texts[1]).build())
