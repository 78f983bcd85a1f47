"""Which device solves for a state, and what is said of the others."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.support.cases import make_problem
from tests.support.jump_cases import star, with_weights
from tetris_sim.config import load_config
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.boundary import Boundary, Dirichlet
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.facts.shares import Link, Plan
from tetris_sim.scheduler.machine.machine import Gpu, Machine
from tetris_sim.scheduler.plan import solving
from tetris_sim.scheduler.plan.solving import (
    on_fastest,
    plan_solving,
    share_solution,
    solving_offers,
)
from tetris_sim.scheduler.tuning.measure import SolvingRate

H200 = Gpu(0, "NVIDIA H200", "sm_90", 139 << 30, 50 << 20, "13.0")
NODE = Machine(
    "host", "cpu", 16, "cores in the affinity mask", 400 << 30, "free memory", gpus=(H200,)
)


def cube(n: int) -> Problem:
    walls = Boundary.everywhere(Dirichlet(1.0), 3)
    problem = with_weights(make_problem(star(3, 0.5), walls, shape=(4, 5, 6))[0], star(3, 0.5))
    return dataclasses.replace(problem, grid=dataclasses.replace(problem.grid, shape=(n, n, n)))


def planned(n: int, machine: Machine = NODE, **compute: object) -> Plan:
    section = ComputeSection.model_validate(compute)
    return plan_solving(cube(n), machine, section, "steady", 1e-8)


def test_a_large_grid_goes_to_the_gpu_and_a_small_one_does_not() -> None:
    (share,) = planned(256).shares
    assert (share.method.name, share.worker, share.product) == ("gpu.steady", "gpu:0", H200.name)
    (share,) = planned(20).shares
    assert share.method.name == "cpu.steady"


@pytest.mark.parametrize(
    ("devices", "name"),
    [("cpu", "cpu.steady"), (["gpu:0"], "gpu.steady"), ("gpu", "gpu.steady")],
)
def test_a_device_that_was_asked_for_solves(devices: object, name: str) -> None:
    for n in (20, 256):
        (share,) = planned(n, devices=devices).shares
        assert share.method.name == name


def test_it_is_said_that_one_device_solves() -> None:
    plan = planned(256)
    assert any("One device solves, gpu:0: cpu:0 about" in reason for reason in plan.reasons)
    assert not any("One " in reason for reason in planned(256, devices="cpu").reasons)


def test_a_cube_of_1024_fits_on_an_h200_and_what_does_not_goes_to_the_host() -> None:
    assert planned(1024, devices=["gpu:0"]).shares[0].memory < 139 << 30
    small = dataclasses.replace(H200, memory=4 << 30)
    plan = planned(512, dataclasses.replace(NODE, gpus=(small,)))
    assert plan.shares[0].method.name == "cpu.steady"
    assert any("gpu:0 would need" in reason for reason in plan.reasons)
    with pytest.raises(UnsupportedError, match="on one device, but 3"):
        planned(512, dataclasses.replace(NODE, gpus=(small,)), devices=["gpu:0"])


def test_a_gpu_solves_only_what_the_host_can_prepare() -> None:
    poor = dataclasses.replace(NODE, memory=8 << 30)
    with pytest.raises(UnsupportedError, match="take a coarser grid"):
        planned(1024, poor, devices=["gpu:0"])


@pytest.mark.parametrize(
    ("time", "times"),
    [("scheme: steady", 1.5), ("scheme: implicit, t_end: 1 h, dt: 600 s", 2.0)],
)
def test_a_radiating_face_is_predicted_to_take_several_solutions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: str, times: float
) -> None:
    rate = SolvingRate(before=0.0, iteration=1e-6)
    monkeypatch.setattr(solving, "measure_solving", lambda place, n_points: rate)
    seconds = []
    for face in ("robin, h: 25", "radiation, emissivity: 0.8"):
        path = tmp_path / "body.yaml"
        path.write_text(f"""
grid: {{shape: [8, 8, 8], size: [10 mm, 10 mm, 10 mm]}}
model: {{type: heat, material: steel}}
boundaries:
  "*": {{type: neumann}}
  x+: {{type: {face}, ambient: 20}}
initial: {{type: constant, value: 20}}
time: {{{time}}}
""")
        config = load_config(path)
        scheme = config.time.scheme
        assert scheme in ("steady", "implicit")
        plan = plan_solving(config.build(), NODE, ComputeSection(devices="cpu"), scheme, 1e-8)
        seconds.append(plan.seconds_per_step)
    assert seconds[1] == pytest.approx(times * seconds[0])


def shared(n: int, speeds: list[float], link: Link) -> Plan:
    """On ranks that are so much faster than the first one."""
    only = ComputeSection.model_validate({"devices": ["gpu:0"]})
    (own,) = solving_offers(cube(n), NODE, only, "steady", 1e-8)
    ranks = [dataclasses.replace(own, seconds=own.seconds / speed) for speed in speeds]
    return share_solution(cube(n), on_fastest(cube(n), [own], "steady"), ranks, link)


def test_ranks_get_planes_by_speed_where_messages_cost_little() -> None:
    plan = shared(512, [1.0, 1.0, 2.0], Link(1e-6, 1e-11))
    assert [share.slab.shape[0] for share in plan.shares] == [128, 128, 256]
    assert [share.rank for share in plan.shares] == [0, 1, 2]
    assert not any(width for share in plan.shares for widths in share.slab.halo for width in widths)
    assert plan.shares[2].memory < plan.shares[0].memory
    alone = shared(512, [1.0], Link(1e-6, 1e-11))
    assert 0.25 < plan.seconds_per_step / alone.seconds_per_step < 0.5
    assert "3 ranks solve linear systems together, in slabs along z" in plan.reasons[-1]


@pytest.mark.parametrize(
    ("n", "ranks", "link", "why"),
    [
        (512, 3, Link(1.0, 1e-9), "all together would take"),
        (32, 2, Link(1e-6, 1e-11), "up to 32768 points"),
        (40, 12, Link(1e-6, 1e-11), "at least 4 planes"),
    ],
)
def test_one_rank_solves_where_the_others_would_not_help(
    n: int, ranks: int, link: Link, why: str
) -> None:
    plan = shared(n, [1.0] * ranks, link)
    assert len(plan.shares) == 1
    assert (
        f"One of {ranks} ranks solves for the whole grid; the others wait for it"
        in (plan.reasons[-1])
    )
    assert why in plan.reasons[-1]
