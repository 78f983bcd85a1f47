"""The GPU benchmarks without a GPU: kernels are emulated, so that all is there but the speed."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import gpu_breakdown, gpu_counters, gpu_sweeps
from benchmarks.emulated import LIMITS, BenchGpu, emulated_gpu
from benchmarks.gpu_alone import Alone, Arena, explicit_alone, fastest, fused_alone, naive_alone
from benchmarks.gpu_breakdown import LADDERS, climb, compare_rungs, paper_steps
from benchmarks.gpu_labels import CONVSTENCIL, ONE_STEP, TETRIS
from benchmarks.gpu_sweeps import Line, lines_of, sweep_gpu
from tests.papers.convstencil.explicit_stencil2row import explicit_stencil2row
from tests.papers.tetris.banded import banded_kernel
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tetris_sim.bench.timing import random_problem
from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.fused.method import FusedMethod
from tetris_sim.model import reference
from tetris_sim.model.problem import Problem

emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> BenchGpu:
    return emulated_gpu(monkeypatch)


def kernels_of(problem: Problem) -> list[Alone]:
    stencil = problem.stencil
    (method,) = (method for method in METHODS if method.name == "gpu.dual_tessellation")
    choice = {**method.parameters(problem)[-1], "steps_per_block": 1}
    kernel = method.families[problem.grid.ndim].kernel(stencil, problem.dtype, choice)  # type: ignore[attr-defined]
    return [
        naive_alone(),
        explicit_alone(explicit_stencil2row(stencil, 2)),
        fused_alone(banded_kernel(stencil, 2, shared=True, swizzled=True), {}),
        fused_alone(kernel, choice),
    ]


@emulated
@pytest.mark.parametrize(
    ("name", "shape"), [("heat-1d", (301,)), ("box-2d9p", (30, 71)), ("heat-3d", (9, 11, 45))]
)
def test_a_kernel_alone_makes_the_steps_that_it_is_credited_with(
    name: str, shape: tuple[int, ...], gpu: BenchGpu
) -> None:
    problem = random_problem(name, shape, "float64")
    for alone in kernels_of(problem):
        arena: Any = Arena(problem, gpu)  # type: ignore[arg-type]
        work = arena.work(alone)
        layout, (now, then) = arena._layout, arena._arrays
        whole = tuple((0, n) for n in shape)
        state = layout.view(now, whole).copy()
        work.run(2)
        box = arena.box(alone.depth)[-len(shape) :]
        inside = tuple(slice(low, high) for low, high in box)
        wanted = reference.advance(state, problem, alone.depth)[(slice(None), *inside)]
        found = layout.view(then, whole)[(slice(None), *inside)]
        np.testing.assert_allclose(
            found, wanted, rtol=0, atol=reference.tolerance(problem, alone.depth, 1.0)
        )
        assert work.units == found.size * alone.depth
        np.testing.assert_array_equal(layout.view(now, whole), state)


@emulated
def test_the_fastest_is_found_and_what_cannot_be_launched_is_left_out(gpu: BenchGpu) -> None:
    problem = random_problem("box-2d9p", (20, 40), "float64")
    arena: Any = Arena(problem, gpu)  # type: ignore[arg-type]
    too_deep = fused_alone(
        banded_kernel(problem.stencil, 12, shared=False), {"steps_per_block": 12}
    )
    alone, _ = fastest(arena, [too_deep, naive_alone()], seconds=1e-3)
    assert alone.depth == 1
    with pytest.raises(UnsupportedError, match=r"no point of .* is farther than 12 steps"):
        fastest(arena, [too_deep], seconds=1e-3)
    with pytest.raises(UnsupportedError, match="nothing to launch"):
        fastest(arena, [], seconds=1e-3)


@pytest.mark.parametrize("name", gpu_breakdown.STENCILS)
def test_every_rung_has_kernels_and_only_the_last_has_other_steps(name: str) -> None:
    shape = {1: (10_000,), 2: (500, 500), 3: (100, 100, 100)}[int(name.split("d")[0][-1])]
    problem = random_problem(name, shape, "float64")
    depths = {
        figure: [sorted({alone.depth for alone in rung.kernels(problem)}) for rung in ladder]
        for figure, ladder in LADDERS.items()
    }
    assert depths[CONVSTENCIL][:-1] == [[paper_steps(problem)]] * 5
    assert depths[TETRIS][:-1] == [[1]] * 5
    assert all(ladder[-1] for ladder in depths.values())


def test_the_papers_kernels_are_seven_points_wide_in_one_and_two_dimensions() -> None:
    steps = {
        "heat-1d": 3,
        "star-1d5p": 1,
        "box-2d9p": 3,
        "box-2d25p": 1,
        "box-2d49p": 1,
        "box-3d27p": 1,
    }
    for name, wanted in steps.items():
        ndim = int(name.split("d")[0][-1])
        assert paper_steps(random_problem(name, (20,) * ndim, "float64")) == wanted


@emulated
def test_a_ladder_is_climbed_and_compared(gpu: BenchGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {CONVSTENCIL: LADDERS[CONVSTENCIL][:3], TETRIS: LADDERS[TETRIS][:4]}
    monkeypatch.setattr(gpu_breakdown, "LADDERS", short)
    monkeypatch.setattr(
        gpu_breakdown,
        "fastest",
        lambda arena, choices, seconds: (choices[0], arena.work(choices[0])),
    )
    found = gpu_breakdown.bench_gpu_breakdown(("heat-2d",), shape=(20, 150), rounds=1, seconds=1e-4)
    json.dumps(found)
    for ladder, rungs in zip(found["gpu_breakdown"], short.values(), strict=True):
        assert [step["name"] for step in ladder["steps"]] == [rung.label for rung in rungs]
        assert ladder["missing"] == {}
        first = ladder["steps"][0]["steady"]["median"]
        for step in ladder["steps"]:
            assert step["over_first"] == pytest.approx(step["steady"]["median"] / first)
            assert step["times_one_sweep"] == pytest.approx(step["steady"]["median"] / 250e9)
    assert {"transform", "multiply", "dual_tessellation", "naive", "banded"} == set(gpu.launches)


@emulated
def test_a_rung_that_cannot_be_climbed_is_missing_with_its_reason(gpu: BenchGpu) -> None:
    problem = random_problem("box-2d9p", (20, 40), "float64")
    ladder = (
        gpu_breakdown.Rung("plain", lambda _: [naive_alone()]),
        gpu_breakdown.Rung("none", lambda _: []),
    )
    found = climb(problem, ladder, gpu, rounds=1, seconds=1e-4)  # type: ignore[arg-type]
    assert [step["name"] for step in found["steps"]] == ["plain"]
    assert found["missing"] == {"none": "there is nothing to launch"}


def test_rungs_are_compared_by_hand() -> None:
    steps = [{"name": str(k), "steady": {"median": rate}} for k, rate in enumerate((1e9, 5e9, 4e9))]
    found = compare_rungs({"steps": steps}, LIMITS)["steps"]
    assert [step["over_first"] for step in found] == [1.0, 5.0, 4.0]
    assert [step["over_previous"] for step in found] == [1.0, 5.0, 0.8]
    assert [step["times_one_sweep"] for step in found] == pytest.approx([0.004, 0.02, 0.016])


def test_only_float64_is_broken_down(gpu: BenchGpu) -> None:
    with pytest.raises(UnsupportedError, match="FP64 tensor cores, and float32 was asked for"):
        gpu_breakdown.bench_gpu_breakdown(("heat-1d",), dtypes=("float32",))


def test_lines_with_one_step_are_drawn_where_steps_are_composed() -> None:
    labels = {
        name: [line.label for line in lines_of(random_problem(name, shape, "float64"))]
        for name, shape in (
            ("heat-1d", (5000,)),
            ("box-2d9p", (200, 200)),
            ("box-2d49p", (200, 200)),
        )
    }
    composing = [
        "gpu.trapezoid",
        "gpu.trapezoid, one step",
        "gpu.dual_tessellation",
        "gpu.dual_tessellation, one step",
    ]
    assert labels["heat-1d"] == ["gpu.stream", *composing, "gpu.plain"]
    assert labels["box-2d9p"] == ["gpu.stream", "gpu.resident", *composing, "gpu.plain"]
    assert labels["box-2d49p"] == ["gpu.stream", *composing[:3], "gpu.plain"]
    for line in lines_of(random_problem("heat-1d", (5000,), "float64")):
        steps = {choice.get("steps_per_block", 1) for choice in line.choices}
        assert (steps == {1}) == (line.label.endswith(ONE_STEP) or line.label == "gpu.plain")


@pytest.fixture
def _few_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    def few(problem: Problem) -> list[Line]:
        lines = {line.label: line for line in lines_of(problem)}
        chosen = [lines["gpu.dual_tessellation" + ONE_STEP], lines["gpu.plain"]]
        for line in chosen:
            line.choices = line.choices[:2]
        return chosen

    monkeypatch.setattr(gpu_sweeps, "lines_of", few)


@emulated
@pytest.mark.usefixtures("_few_lines")
def test_every_size_is_swept_with_parameters_of_its_own(
    gpu: BenchGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gpu_sweeps.LENGTHS, 2, (20, 30, 99))
    found = gpu_sweeps.bench_gpu_sweep(("box-2d9p",), shape=(33, 40), rounds=1, seconds=1e-4)
    json.dumps(found)
    (sweep,) = found["gpu_sizes"]
    assert (sweep["stencil"], sweep["weights"], sweep["dtype"]) == ("box-2d9p", "random", "float64")
    assert [point["shape"] for point in sweep["points"]] == [[20, 20], [30, 30], [33, 40]]
    for point in sweep["points"]:
        assert [row["name"] for row in point["rows"]] == [
            "gpu.dual_tessellation, one step",
            "gpu.plain",
        ]
        assert all(row["steady"]["median"] > 0 for row in point["rows"])
        assert point["rows"][0]["parameters"]["steps_per_block"] == 1
    assert gpu.replays > 0  # launches were recorded before anything was timed


@emulated
@pytest.mark.usefixtures("_few_lines")
def test_what_memory_does_not_hold_is_timed_one_after_the_other_or_said_to_be_missing(
    gpu: BenchGpu,
) -> None:
    one = 40 * 40 * 8

    def sweep(memory: int) -> list[dict[str, Any]]:
        shapes = [(20, 20), (40, 40)]
        spare = gpu_sweeps._SPARE
        device: Any = gpu
        return sweep_gpu(
            "box-2d9p", shapes, "float64", device, memory=spare + memory, rounds=1, seconds=1e-4
        )

    assert [len(point["rows"]) for point in sweep(3 * one)] == [2, 2]
    small, large = sweep(one)
    assert len(small["rows"]) == 2
    assert large["rows"] == []
    assert set(large["missing"].values()) == {"the grid does not fit into GPU memory"}


def test_what_is_far_behind_is_not_tried_at_the_next_size(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {1: 10.0, 2: 7.9, 3: 8.1}
    tried: list[tuple[int, int]] = []

    def attempt(piece: Problem, method: Any, choice: Any, *_: Any) -> float:
        if choice["k"] == 4:
            message = "no such tile"
            raise UnsupportedError(message)
        tried.append((piece.grid.n_points, choice["k"]))
        return rates[choice["k"]]

    monkeypatch.setattr(gpu_sweeps, "_try", attempt)
    monkeypatch.setattr(gpu_sweeps, "_SETTLED_POINTS", 1000)
    monkeypatch.setattr(gpu_sweeps, "_CHOICE_POINTS", 5000)
    line = Line("a", METHODS[0], [{"k": k} for k in (1, 2, 3, 4)])
    for n in (10, 40, 50, 80):
        problem = random_problem("heat-2d", (n, n), "float64")
        assert gpu_sweeps._choose(line, problem, None, 1.0) is None  # type: ignore[arg-type]
        assert line.chosen == {"k": 1}
    sizes = {
        n: [k for _, k in group] for n, group in itertools.groupby(tried, key=lambda each: each[0])
    }
    assert sizes == {100: [1, 2, 3], 1600: [1, 2, 3], 2500: [1, 3]}
    only_bad = Line("b", METHODS[0], [{"k": 4}, {"k": 4}])
    assert gpu_sweeps._choose(only_bad, problem, None, 1.0) == "no such tile"  # type: ignore[arg-type]


class Profiled(BenchGpu):
    """A device that notes when it is watched, and has a number on the bus."""

    def __init__(self, number: int = 0) -> None:
        super().__init__()
        self.seen: list[str] = []
        profiler = SimpleNamespace(
            start=lambda: self.launches.clear(), stop=lambda: self.seen.extend(self.launches)
        )
        self.cupy.cuda = SimpleNamespace(
            profiler=profiler, Device=lambda _: SimpleNamespace(pci_bus_id="0000:01:00.0")
        )


@emulated
def test_the_profiler_sees_one_launch_of_each_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Profiled()
    monkeypatch.setattr(gpu_counters, "GpuDevice", lambda _: device)
    problem = random_problem("box-2d9p", (30, 150), "float64")
    cases: list[dict[str, Any]] = [
        {
            "stencil": "box-2d9p",
            "weights": "symmetric",
            "method": method.name,
            "shape": [30, 150],
            "dtype": "float64",
            "parameters": dict(method.parameters(problem)[-1], steps_per_block=1),
        }
        for method in METHODS
        if isinstance(method, FusedMethod) and method.refusal(problem) is None
    ]
    gpu_counters.launch_cases(json.loads(json.dumps(cases)))
    assert device.seen == ["stream_2d", "trapezoid", "dual_tessellation"]


def script(folder: Path, text: str) -> str:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


@emulated
def test_clock_and_power_are_read_while_a_kernel_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    device: Any = Profiled()
    monkeypatch.setattr(gpu_counters, "_WARM", 0.01)
    monkeypatch.setattr(gpu_counters, "_BEAT", 0.001)
    work = Arena(random_problem("box-2d9p", (20, 40), "float64"), device).work(naive_alone())
    reads = script(tmp_path, f'sleep 0.1; echo "$@" > {tmp_path}/asked; echo "1725, 690.25"')
    monkeypatch.setattr("benchmarks.gpu_counters.shutil.which", lambda *_, **__: reads)
    found = gpu_counters.sustain(work, device)
    assert (found["clock"], found["power"]) == (1.725e9, 690.25)
    assert found["rate"] is not None
    assert found["rate"] > 0
    assert (
        (tmp_path / "asked")
        .read_text()
        .startswith("-i 0000:01:00.0 --query-gpu=clocks.sm,power.draw.instant")
    )
    fails = script(tmp_path, "echo no such device; exit 6")
    monkeypatch.setattr("benchmarks.gpu_counters.shutil.which", lambda *_, **__: fails)
    assert gpu_counters.sustain(work, device)["clock"] is None
    monkeypatch.setattr("benchmarks.gpu_counters.shutil.which", lambda *_, **__: None)
    found = gpu_counters.sustain(work, device)
    assert (found["clock"], found["power"]) == (None, None)


@emulated
def test_every_method_with_kernels_is_counted_with_its_fastest(
    gpu: BenchGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[Any] = []

    def count(cases: Any, profiler: str) -> Any:
        counted.extend(cases)
        return [{"method": case["method"]} for case in cases]

    def first(arena: Any, choices: Any, seconds: float) -> Any:
        return fastest(arena, choices[-1:], seconds=seconds)

    monkeypatch.setattr(gpu_counters, "count", count)
    monkeypatch.setattr(gpu_counters, "fastest", first)
    monkeypatch.setattr(gpu_counters, "find_profiler", lambda: "/bin/echo")
    monkeypatch.setattr(gpu_counters, "sustain", lambda work, device: {"rate": work.units})
    found = gpu_counters.bench_gpu_counters(("heat-1d",), shape=(9000,), rounds=1, seconds=1e-3)
    assert [case["method"] for case in counted] == [
        "gpu.stream",
        "gpu.trapezoid",
        "gpu.dual_tessellation",
    ]
    assert [case["method"] for case in found["gpu_counters"]] == [
        case["method"] for case in counted
    ]
    assert found["profiler"] == "unknown"
    for case in counted:
        assert case["updates"] == case["sustained"]["rate"] > 8000
