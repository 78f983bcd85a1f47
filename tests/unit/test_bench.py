"""The benchmark: its baselines compute the same as we do, its timing and its shares are right, the
verb works.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.samples import LIMITS, PacedMethod, kernel, result, row
from tetris_sim.__main__ import main
from tetris_sim.bench.candidates import choose_parameters, make_prange, padded_pair, time_whole_run
from tetris_sim.bench.result import BenchResult, read_result
from tetris_sim.bench.tables import (
    better_loop,
    bounds_of,
    precisions_table,
    share_of_fma,
    share_of_sweep,
)
from tetris_sim.bench.timing import TimedWork, interleave, random_problem, random_weights
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES


@pytest.mark.parametrize("form", ["slices", "indexed"])
@pytest.mark.parametrize("name", ["star-1d5p", "heat-2d", "heat-3d"])
def test_the_hand_written_loops_compute_the_stencil(name: str, form: Any) -> None:
    stencil = random_weights(name)
    u, v = padded_pair(stencil, {1: (9001,), 2: (7, 9), 3: (7, 9, 11)}[stencil.ndim], "float64")
    before, weights = u.copy(), np.array(stencil.weights)
    make_prange(stencil, form)(u, v, weights)
    inside = tuple(slice(r, n - r) for r, n in zip(stencil.radii, u.shape, strict=True))
    expected = sum(
        w
        * u[
            tuple(
                slice(r + d, n - r + d)
                for r, d, n in zip(stencil.radii, offset, u.shape, strict=True)
            )
        ]
        for w, offset in zip(weights, stencil.offsets, strict=True)
    )
    np.testing.assert_allclose(v[inside], expected, rtol=1e-14)
    np.testing.assert_array_equal(u, before)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", [(50,), (5, 7), (4, 5, 6)])
def test_random_fields_have_no_zeros_and_every_part_of_them_fits_to_the_others(
    shape: tuple[int, ...], dtype: str
) -> None:
    problem = random_problem({1: "heat-1d", 2: "heat-2d", 3: "heat-3d"}[len(shape)], shape, dtype)
    whole = problem.initial(Slab.whole(problem.grid))
    part = problem.initial(Slab((2,) * len(shape), shape, ((0, 0),) * len(shape)))
    np.testing.assert_array_equal(part, whole[(slice(None), *(slice(2, None) for _ in shape))])
    assert whole.shape == (1, *shape)
    assert whole.dtype == np.dtype(dtype)
    assert whole.max() <= 1.0
    assert whole.min() > 0.0
    assert np.unique(whole).size > whole.size // 2
    assert sum(problem.stencil.weights) == pytest.approx(1.0, abs=1e-15)


def test_rates_are_units_per_second_and_repetitions_come_in_whole_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, calls = [0.0], []
    monkeypatch.setattr("tetris_sim.bench.timing.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr("tetris_sim.bench.timing.time.sleep", lambda _: None)

    def run(repetitions: int) -> None:
        calls.append(repetitions)
        clock[0] += repetitions * 0.25 * (2.0 if len(calls) == 6 else 1.0)  # one slow round

    found = interleave({"one": TimedWork(run, units=500.0, quantum=3)}, rounds=3, seconds=7.0)[
        "one"
    ]
    # First use; a block, less than an eighth of 7 s; two blocks, more; then 7 s at 0.25 s each, in
    # whole blocks.
    assert calls == [3, 3, 6, 27, 27, 27]
    assert (found.low, found.median, found.high) == (1000.0, 2000.0, 2000.0)


def test_shares_are_what_one_computes_by_hand() -> None:
    # 100e9 multiply-adds/s over 5 points: 20 GStencil/s. 32 GB/s over 16 bytes: 2 GStencil/s.
    slow, fast = row("prange indexed", 1e9), row("prange slices", 1.5e9)
    plain = row("cpu.plain", 1.6e9, end_to_end=(1000, 6e9))  # steady beside it: 12 GStencil/s
    tiled = row("cpu.tessellate", 12e9, parameters={"steps_per_block": 8}, end_to_end=(1000, 9e9))
    case = kernel([slow, fast, plain, tiled])
    bounds = bounds_of(case, LIMITS)
    assert (bounds.fma, bounds.memory, bounds.tighter) == (20e9, 2e9, "memory")
    assert better_loop(case) == fast.rate
    assert share_of_fma(tiled, case, bounds) == 0.6
    assert share_of_sweep(tiled, bounds) is None
    assert share_of_sweep(plain, bounds) == 0.8
    assert tiled.end_to_end is not None
    assert tiled.end_to_end.share_of_steady == 0.75
    assert plain.end_to_end is not None
    assert plain.end_to_end.share_of_steady == 0.5
    assert plain.end_to_end.share_without_memory == pytest.approx(0.5 / 0.9)


def test_precisions_are_compared_where_both_were_measured() -> None:
    double, single = (
        kernel([row("cpu.plain", 2e9), row("cpu.stream", 8e9)]),
        kernel([row("cpu.plain", 3e9)], "float32"),
    )
    assert precisions_table([double, single]).rows == [["heat-2d", "cpu.plain", "2", "3", "1.50"]]
    assert precisions_table([double]).rows == []


def test_the_fastest_parameters_are_chosen_and_impossible_ones_left_out() -> None:
    problem, team = random_problem("heat-1d", (100,), "float64"), ThreadTeam(1)
    method = PacedMethod("cpu.paced", {1: 3e-3, 2: 1e-3})
    choices = [{"pace": 1}, {"pace": 7}, {"pace": 2}, {"pace": 1}]
    parameters, trials = choose_parameters(problem, method, choices, team, seconds=0.01)
    assert parameters == {"pace": 2}
    assert [trial.parameters for trial in trials] == [{"pace": 1}, {"pace": 2}]
    assert choose_parameters(problem, method, [{"pace": 1}], team, seconds=0.01) == (
        {"pace": 1},
        (),
    )
    with pytest.raises(UnsupportedError, match="no pace 7; no pace 8"):
        choose_parameters(problem, method, [{"pace": 7}, {"pace": 8}], team, seconds=0.01)
    team.close()


def test_an_end_to_end_run_counts_everything_from_memory_to_the_result() -> None:
    problem, team = random_problem("heat-1d", (100,), "float64"), ThreadTeam(1)
    method = PacedMethod("cpu.paced", {1: 1e-3}, prepare_seconds=0.02)
    found = time_whole_run(problem, method, {"pace": 1}, team, steps=10)
    assert found.seconds >= 0.03
    assert found.rate == pytest.approx(100 * 10 / found.seconds)
    assert found.rate < found.steady_rate <= 100 / 1e-3
    assert (found.steps, found.runs) == (10, 3)
    team.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--rounds 0", "--rounds is 0: at least one timing"),
        ("--seconds 0", "--seconds is 0.0: a timing takes some time"),
        ("--seconds nan", "--seconds is nan"),
        (
            "--stencils heat-2d --size 0",
            "--size is '0': it must be a whole number of points, at least 1",
        ),
        ("--stencils heat-2d --size -3", "--size is '-3'"),
        (
            "--stencils heat-2d --shape 40x0",
            "--shape is '40x0': it must be such numbers joined by x",
        ),
        ("--stencils heat-2d --shape 40", "--shape 40 has 1 axes, but the stencils heat-2d have 2"),
        ("--size 40", "--size is for stencils of one dimension at a time"),
        ("--stencils heat-4d", "--stencils: 'heat-4d' is not in the catalogue"),
        ("--dtype float16", "--dtype is float16, which CPUs only convert: bench gpu measures it"),
        ("--output no/such/folder/a.json", "--output: there is no folder"),
        ("--stencils heat-1d --size 900000000000", "for all candidates together"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is(
    arguments: str,
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "tetris_sim.bench.candidates.measure_limits", lambda *_, **__: LIMITS["before"]
    )
    monkeypatch.setattr("tetris_sim.bench.candidates.interleave", _never)
    code = main(["bench", "cpu", *arguments.split()])
    assert message in capsys.readouterr().err
    assert code in (2, 3)


def _never(*args: Any, **options: Any) -> Any:
    pytest.fail("something was measured before the mistake was found")


@pytest.mark.parametrize(
    ("arguments", "function", "names", "shape", "dtypes"),
    [
        ("", "candidates.bench_cpu", STENCIL_NAMES, None, ("float64",)),
        (
            "--stencils all --dtype both",
            "candidates.bench_cpu",
            STENCIL_NAMES,
            None,
            ("float64", "float32"),
        ),
        (
            "--stencils heat-3d --shape 7x8x9",
            "candidates.bench_cpu",
            ("heat-3d",),
            (9, 8, 7),
            ("float64",),
        ),
        (
            "--stencils heat-2d,box-2d9p --size 7",
            "candidates.bench_cpu",
            ("heat-2d", "box-2d9p"),
            (7, 7),
            ("float64",),
        ),
    ],
)
def test_the_verb_measures_what_was_asked_for(
    arguments: str,
    function: str,
    names: tuple[str, ...],
    shape: tuple[int, ...] | None,
    dtypes: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[Any] = []

    def measure(names: Any, **options: Any) -> BenchResult:
        asked.append((tuple(names), options))
        return result()

    monkeypatch.setattr(f"tetris_sim.bench.{function}", measure)
    assert main(["bench", "cpu", "--rounds", "4", "--seconds", "0.5", *arguments.split()]) == 0
    assert asked == [(names, {"shape": shape, "dtypes": dtypes, "rounds": 4, "seconds": 0.5})]
    assert "Limits of the machine" in capsys.readouterr().out


@pytest.mark.slow
def test_the_verb_runs_again_from_the_cache_and_says_what_was_measured(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "tetris_sim",
        "bench",
        "cpu",
        "--stencils",
        "heat-1d",
        "--shape",
        "9000",
    ]
    command += ["--rounds", "1", "--seconds", "0.002", "--json", "-o", str(tmp_path / "a.json")]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert json.loads((tmp_path / "a.json").read_text()) == found
    assert {
        "cpu",
        "date",
        "commit",
        "versions",
        "host",
        "threads",
        "limits",
        "rounds",
        "seconds",
    } <= set(found)
    (case,) = read_result(found).kernels
    assert (case.stencil, case.shape, case.dtype) == ("heat-1d", (9000,), "float64")
    rows = {row.name: row for row in case.rows}
    assert {"prange slices", "prange indexed", "cpu.plain"} <= set(rows)
    bounds = bounds_of(case, read_result(found).limits)
    for measured in rows.values():
        steady = measured.steady
        assert 0 < steady.low <= steady.median <= steady.high
        assert steady.of_yardstick is not None
        share = share_of_fma(measured, case, bounds)
        assert share == pytest.approx(steady.of_yardstick * case.n_terms)
    whole = rows["cpu.plain"].end_to_end
    assert whole is not None
    assert whole.steps == 1000
