"""The tuner keeps to the method and the parameters that are asked for."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.fake_methods import FakeMethod
from tests.support.tuner_cases import MACHINE, TERMS, Use, label, problem_of
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.errors import ConfigError
from tetris_sim.scheduler.tuning.candidates import TuningRequest, check_asked
from tetris_sim.scheduler.tuning.tune import Terms, tune

pytestmark = pytest.mark.usefixtures("kept_choices")


def asking(method: str, **parameters: int) -> Terms:
    return dataclasses.replace(TERMS, asked=TuningRequest(method, parameters))


def test_parameters_that_are_asked_for_are_used_and_the_others_are_the_best_guess(use: Use) -> None:
    use(
        FakeMethod("cpu.a", ({"tile": 3, "delay_us": 0}, {"tile": 5, "delay_us": 0})),
        CpuPlainMethod(),
    )
    assert label(tune(problem_of(), MACHINE, asking("cpu.a", delay_us=7))) == (
        "cpu.a",
        {"tile": 3, "delay_us": 7},
    )


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (
            asking("cpu.a", tiles=3),
            r"compute\.parameters\.tiles is not a parameter.*takes tile and delay_us.*'tile'",
        ),
        (
            asking("cpu.a", tile=0),
            r"compute\.parameters\.tile is 0; cpu\.a takes from 1 to 1048576",
        ),
        (asking("cpu.a", tile=2**20 + 1), r"takes from 1 to 1048576, and proposes 3"),
        (
            asking("cpu.plain", tile=3),
            r"compute\.parameters\.tile is not a parameter.*cpu\.plain takes none",
        ),
        (
            asking("cpu.a", tile=13),
            r"these parameters of cpu\.a cannot be used.*tile 13.*ValueError: unlucky",
        ),
        (asking("auto", tile=3), "parameters belong to one method"),
        (
            asking("cpu.q"),
            r"compute\.method is 'cpu\.q', which is not one of the methods: auto, cpu\.a, cpu\.plain",
        ),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_what_can(
    use: Use, terms: Terms, said: str
) -> None:
    failing = FakeMethod(
        "cpu.a",
        ({"tile": 3, "delay_us": 0},),
        failure=ValueError("unlucky"),
        fails_with=("tile", 13),
    )
    use(failing, CpuPlainMethod())
    with pytest.raises(ConfigError, match=said):
        tune(problem_of(), MACHINE, terms)


def test_a_parameter_that_only_a_later_proposal_has_can_be_asked_for(use: Use) -> None:
    use(
        FakeMethod(
            "cpu.a",
            ({"tile": 1, "delay_us": 0}, {"tile": 2, "delay_us": 0, "star": 1, "blocks": 5}),
        )
    )
    assert label(tune(problem_of(), MACHINE, asking("cpu.a", star=1))) == (
        "cpu.a",
        {"tile": 2, "delay_us": 0, "star": 1, "blocks": 5},
    )
    with pytest.raises(ConfigError, match=r"cpu\.a takes tile, delay_us, star and blocks"):
        tune(problem_of(), MACHINE, asking("cpu.a", stars=1))


def test_parameters_are_looked_at_without_a_device(use: Use) -> None:
    use(FakeMethod("cpu.a", ({"tile": 3, "delay_us": 0},)))
    check_asked(problem_of(), TuningRequest("cpu.a", {"delay_us": 0, "tile": 1}))
    with pytest.raises(ConfigError, match=r"parameters\.tile is 0"):
        check_asked(problem_of(), TuningRequest("cpu.a", {"tile": 0}))
    with pytest.raises(ConfigError, match="not one of the methods"):
        check_asked(problem_of(), TuningRequest("cpu.b"))
