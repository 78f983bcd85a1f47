"""Results of the GPU benchmarks: counters are read and judged, tables and pictures show what is in
the file.
"""

from __future__ import annotations

import copy
import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import cpu, gpu, gpu_counters
from benchmarks.gpu_breakdown import compare_rungs
from benchmarks.gpu_counters import METRICS, count, derive, find_profiler, read_counters
from benchmarks.gpu_labels import CONVSTENCIL, ONE_STEP, TETRIS
from benchmarks.pictures import draw_all, save
from benchmarks.samples import main_result, result, row, timing
from benchmarks.study_tables import as_markdown, as_text
from tetris_sim.bench.result import MachineLimits
from tetris_sim.errors import UnsupportedError
from tetris_sim.scheduler.machine.machine import Gpu

LIMITS = MachineLimits(
    copy=timing(4e12),
    fma={"float64": timing(16e12), "float32": timing(32e12)},
    tensor=timing(32e12),
)
GPU = Gpu(0, "A GPU", "sm_90", 8 << 30, 50 << 20, "13.0")


def gpu_result(**parts: Any) -> dict[str, Any]:
    measured = result(limits={}, gpu=GPU, gpu_limits={"before": LIMITS, "after": LIMITS})
    return {**measured.as_json(), **parts}


def sweep_result() -> dict[str, Any]:
    points = [
        {
            "shape": [n, n],
            "bytes": 8 * n * n,
            "rows": [
                asdict(row("gpu.stream", 1e9 * n, parameters={"steps_per_block": 16})),
                asdict(row("gpu.trapezoid" + ONE_STEP, 2e8 * n, parameters={"steps_per_block": 1})),
                asdict(row("gpu.plain", 1e8 * n)),
            ],
            "missing": {},
        }
        for n in (256, 512)
    ]
    points.append(
        {"shape": [1024, 1024], "bytes": 1 << 23, "rows": [], "missing": {"gpu.plain": "no room"}}
    )
    return gpu_result(
        gpu_sizes=[{"stencil": "heat-2d", "weights": "equal", "dtype": "float64", "points": points}]
    )


def breakdown_result() -> dict[str, Any]:
    ladders = []
    for figure, rates in ((CONVSTENCIL, (1e11, 4e11, 3e11)), (TETRIS, (2e11, 1e11))):
        steps = [
            asdict(row(f"rung {k}", rate, parameters={"steps_per_block": k}))
            for k, rate in enumerate(rates)
        ]
        header = {
            "figure": figure,
            "stencil": "box-2d9p",
            "n_terms": 9,
            "shape": [300, 400],
            "dtype": "float64",
        }
        ladder = {**header, "steps": steps, "missing": {"+ magic": "nobody knows how"}}
        ladders.append(compare_rungs(ladder, {"before": LIMITS}))
    return gpu_result(gpu_breakdown=ladders)


COUNTED = {
    "nanoseconds": 500_000.0,
    "clock": 1.9e9,
    "registers": 128.0,
    "occupancy": 25.0,
    "issue_active": 30.4,
    "fp64_pipe": 0.0,
    "fp64_tensor_pipe": 85.2,
    "half_tensor_pipe": 45.0,
    "sm": 71.0,
    "l1": 38.0,
    "l2": 41.0,
    "dram": 60.0,
    "dram_bytes": 3.2e9,
    "shared_conflicts": 700.0,
    "shared_load_conflicts": 400.0,
    "shared_load_requests": 900.0,
    "shared_store_conflicts": 100.0,
    "shared_store_requests": 100.0,
    "global_sectors": 1e8,
    "global_sectors_ideal": 9e7,
    "instructions": 1e6,
    **dict.fromkeys(gpu_counters.STALLS, 0.5),
    "math_pipe_throttle": 3.0,
}


def counters_result() -> dict[str, Any]:
    case: dict[str, Any] = {
        "stencil": "heat-2d",
        "weights": "equal",
        "method": "gpu.dual_tessellation",
    }
    case |= {"parameters": {"steps_per_block": 4}}
    header = {**case, "shape": [300, 400], "dtype": "float64", "updates": 4e8}
    sustained = {"rate": 7e11, "clock": 1.7e9, "power": 690.2}
    blank = {**dict.fromkeys(COUNTED, None)}
    cases = [
        {**header, **derive(COUNTED, 4e8), "sustained": sustained},
        {**header, **derive(blank, 4e8), "sustained": dict.fromkeys(sustained)},
        {**header, **derive(COUNTED, 4e8), "sustained": sustained, "dtype": "float16"},
    ]
    return gpu_result(gpu_counters=cases, profiler="2025.3")


RESULTS = {"sweep": sweep_result, "breakdown": breakdown_result, "counters": counters_result}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_reads_the_same_from_its_file(name: str) -> None:
    found = RESULTS[name]()
    again = json.loads(json.dumps(found))
    assert as_text(again) == as_text(found)
    lines = as_markdown(again).splitlines()
    assert lines == as_markdown(found).splitlines()
    assert lines[0].startswith("A GPU (sm_90, CUDA 13.0), 2026-11-01, commit abc, ")
    assert "| multiply-adds, float64, tensor cores | 1e9/s | 32000 | 32000 |" in lines


def test_the_sweep_has_a_column_for_every_line_and_the_steps_of_each() -> None:
    lines = as_markdown(sweep_result()).splitlines()
    assert "| stencil | dtype | grid | gpu.stream | gpu.trapezoid, one step | gpu.plain |" in lines
    assert "| heat-2d | float64 | 256 x 256 | 256 (16) | 51.2 (1) | 25.6 (1) |" in lines
    assert "| heat-2d | float64 | 1024 x 1024 |  |  |  |" in lines
    assert lines[-1] == "gpu.plain not for heat-2d on 1024 x 1024 points: no room."


def test_the_breakdown_shows_each_rung_over_the_first_the_one_above_and_a_sweep() -> None:
    lines = as_markdown(breakdown_result()).splitlines()
    third = (
        f"| {CONVSTENCIL} | box-2d9p | 400 x 300 | rung 2 | steps_per_block 2 | 300 | 3.00 | 0.75 "
        "| 1.20 |"
    )
    assert third in lines
    assert '"+ magic" not for box-2d9p: nobody knows how.' in lines


def test_counters_stand_beside_those_of_the_paper() -> None:
    lines = as_markdown(counters_result()).splitlines()
    case = "| heat-2d | equal | gpu.dual_tessellation |"
    for busy in ("85%", "45%"):  # of the tensor cores' FP64, and of their FP16
        shares = f"71% | 38% | 41% | 60% | 0% | {busy} | 30% | 25%"
        assert (
            f"{case} math pipe throttle | 4 | 800 | 1.9 | {shares} | 128 | 700 | 1.7 | 690 |"
            in lines
        )
    assert f"{case} 10.00% | 0.50 |" in lines
    assert f"{case}  |  |" in lines
    assert "| heat-2d |  | ConvStencil, A100 (paper) | 3.42% | 0.39 |" in lines
    assert "| box-2d9p |  | TCStencil, A100 (paper) | 45.35% | 1.29 |" in lines


@pytest.mark.parametrize(
    ("name", "kinds"), [("sweep", ["sizes"]), ("breakdown", ["convstencil", "tetris"])]
)
def test_pictures_are_the_same_each_time_and_show_the_measured_values(
    name: str, kinds: list[str], tmp_path: Path
) -> None:
    found = RESULTS[name]()
    figures = draw_all(json.loads(json.dumps(found)))
    assert list(figures) == kinds
    for kind, figure in figures.items():
        save(figure, tmp_path / f"{kind}.svg")
        save(draw_all(copy.deepcopy(found))[kind], tmp_path / "again.svg")
        assert (tmp_path / f"{kind}.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()
    lines = {
        str(line.get_label()): np.asarray(line.get_xydata()).tolist()
        for line in figures[kinds[0]].axes[0].lines
    }
    if name == "sweep":
        assert lines["gpu.stream"] == [[256.0, 256.0], [512.0, 512.0]]
    else:
        assert [lines[f"rung {k}"] for k in range(3)] == [
            [[0.0, 100.0]],
            [[1.0, 400.0]],
            [[2.0, 300.0]],
        ]


def printed(values: list[dict[str, str]]) -> str:
    """As `ncu --csv --page raw` prints launches, among what the program and the profiler say."""
    names = ["ID", "Kernel Name", *METRICS.values()]
    lines = ["==PROF== Connected to process 7", "said by the program"]
    lines.append(",".join(f'"{name}"' for name in names))
    lines.append(",".join('""' if name in ("ID", "Kernel Name") else '"unit"' for name in names))
    for number, found in enumerate(values):
        cells = [str(number), 'dual_tessellation(const double *, "x")'.replace('"', '""')]
        cells += [found.get(name, "n/a") for name in METRICS]
        lines.append(",".join(f'"{cell}"' for cell in cells))
    return "\n".join(lines) + "\n"


def test_counters_are_read_from_what_the_profiler_prints() -> None:
    text = printed(
        [{"nanoseconds": "1,234", "dram": "51.5", "occupancy": "nan"}, {"nanoseconds": "5"}]
    )
    first, second = read_counters(text)
    assert (first["nanoseconds"], first["dram"], first["occupancy"], first["clock"]) == (
        1234.0,
        51.5,
        None,
        None,
    )
    assert second["nanoseconds"] == 5.0
    assert first["barrier"] is None
    assert read_counters("==ERROR== no permission") == []


def test_what_follows_from_the_counters_is_what_one_computes_by_hand() -> None:
    found = derive(COUNTED, 4e8)
    assert found["rate"] == 4e8 / 500e-6
    assert found["bank_conflicts_per_request"] == 0.5
    assert found["uncoalesced"] == pytest.approx(0.1)
    assert found["stall"] == "math_pipe_throttle"
    few = derive(
        {
            **COUNTED,
            "global_sectors": 1e4,
            "shared_load_requests": 0.0,
            "shared_store_requests": None,
        },
        1.0,
    )
    assert few["uncoalesced"] is None  # 0.01 % of the bytes: bulk copies move the others
    assert few["bank_conflicts_per_request"] is None


def test_a_profiler_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> Any:
        asked.append(command)
        return SimpleNamespace(
            stdout=printed([{"nanoseconds": "5"}]), stderr="ERR_NVGPUCTRPERM", returncode=1
        )

    monkeypatch.setattr("benchmarks.gpu_counters.subprocess.run", run)
    with pytest.raises(
        UnsupportedError,
        match=r"counted 1 of 2 launches .*7\nsaid by the program\nERR_NVGPUCTRPERM",
    ):
        count([{}, {}], "/usr/bin/ncu")
    assert asked[0][:2] == ["/usr/bin/ncu", "--clock-control=none"]
    monkeypatch.setattr("benchmarks.gpu_counters.shutil.which", lambda *_, **__: None)
    with pytest.raises(UnsupportedError, match="Nsight Compute: install it"):
        find_profiler()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--breakdown --dtype both", "the breakdown is of FP64 tensor cores, and float64, float32"),
        ("--sweep --stencils heat-4d", "'heat-4d' is not in the catalogue"),
        ("--counters --stencils heat-2d --size 0", "--size is '0'"),
        ("--sweep", "there is no GPU to measure: no driver"),
        ("--breakdown", "there is no GPU to measure: no driver"),
        ("", "there is no GPU to measure: no driver"),
    ],
)
def test_what_cannot_be_measured_on_a_gpu_is_refused(
    arguments: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = SimpleNamespace(gpus=(), gpus_reason="no driver")
    monkeypatch.setattr("tetris_sim.bench.gpu.find_machine", lambda: machine)
    assert gpu.main(arguments.split()) in (2, 3)
    assert message in capsys.readouterr().err


def test_counters_are_of_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cpu.main(["--counters"])
    assert "--counters" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "function"),
    [
        ("--sweep", "gpu_sweeps.bench_gpu_sweep"),
        ("--breakdown", "gpu_breakdown.bench_gpu_breakdown"),
        ("--counters", "gpu_counters.bench_gpu_counters"),
    ],
)
def test_the_script_measures_on_the_gpu_what_was_asked_for(
    flag: str, function: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[Any] = []

    def measure(names: Any, **options: Any) -> dict[str, Any]:
        asked.append((tuple(names), options))
        return gpu_result()

    monkeypatch.setattr(f"benchmarks.{function}", measure)
    assert gpu.main([flag, "--rounds", "4", "--stencils", "heat-3d", "--shape", "7x8x9"]) == 0
    assert asked == [
        (("heat-3d",), {"shape": (9, 8, 7), "dtypes": ("float64",), "rounds": 4, "seconds": 0.4})
    ]
    assert "Limits of the GPU" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "function", "names", "dtypes"),
    [
        (
            "--breakdown",
            "cpu_breakdown.bench_breakdown",
            ("star-1d5p", "box-2d25p", "box-3d27p"),
            ("float64",),
        ),
        (
            "--sweep --dtype float32",
            "cpu_sweeps.bench_sweeps",
            ("heat-1d", "heat-2d", "heat-3d"),
            ("float32",),
        ),
    ],
)
def test_the_script_measures_on_the_cpu_what_was_asked_for(
    arguments: str,
    function: str,
    names: tuple[str, ...],
    dtypes: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[Any] = []

    def measure(names: Any, **options: Any) -> dict[str, Any]:
        asked.append((tuple(names), options))
        return result().as_json()

    monkeypatch.setattr(f"benchmarks.{function}", measure)
    assert cpu.main(["--rounds", "4", "--seconds", "0.5", *arguments.split()]) == 0
    assert asked == [(names, {"shape": None, "dtypes": dtypes, "rounds": 4, "seconds": 0.5})]
    assert "Limits of the machine" in capsys.readouterr().out


def _never(*_: Any, **__: Any) -> Any:
    pytest.fail("something was measured before the mistake was found")


@pytest.mark.parametrize("flag", ["--breakdown", "--sweep"])
def test_what_does_not_fit_is_refused_before_anything_is_measured(
    flag: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tetris_sim.bench.candidates.measure_limits", lambda *_, **__: LIMITS)
    monkeypatch.setattr("tetris_sim.bench.candidates.interleave", _never)
    assert cpu.main(["--stencils", "heat-1d", "--size", "900000000000", flag]) in (2, 3)
    assert "for all candidates together" in capsys.readouterr().err


def test_a_script_draws_beside_what_it_writes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.cpu.bench_cpu", lambda *_, **__: main_result())
    assert cpu.main(["--json", "-o", str(tmp_path / "a.json")]) == 0
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads(capsys.readouterr().out)
    assert (tmp_path / "a-comparison.svg").read_text().startswith("<?xml")
