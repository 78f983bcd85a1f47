"""Tables of the benchmark pages that say in a few rows what whole results say: what was wanted and
what was measured, and the headlines of docs/benchmarks/README.md.

What was wanted was written down before anything was measured. Figures of others are published ones,
measured on the same kind of GPU, without faces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmark_bodies import (
    bodies_beside_peers,
    bodies_on_a_gpu,
    bodies_on_two_cores,
    heat_on_a_gpu,
)
from benchmark_choice import first_choice, first_choice_smaller
from benchmark_equations import (
    equations_on_a_gpu,
    equations_on_one_and_two_cores,
    equations_on_two_cores,
)
from benchmark_matrix import matrix, matrix_rates, matrix_reasons
from benchmark_newcomer import newcomer
from benchmark_schemes import jumps, steady_beside_pyamg

from benchmarks.device_goals import measurements, one_gpu
from benchmarks.gpu_labels import CONVSTENCIL
from tetris_sim.bench.result import read_result
from tetris_sim.bench.tables import Bounds, TextTable, billions, bounds_of, grid, percent

Row = Mapping[str, Any]
Read = Callable[[str], Mapping[str | None, Mapping[str, Any]]]
"""The runs of a file of benchmarks/ by their names."""

CPU_WANTED = {
    "heat-1d": 0.85,
    "star-1d5p": 0.80,
    "heat-2d": 0.55,
    "star-2d9p": 0.55,
    "star-2d13p": 0.55,
    "box-2d9p": 0.70,
    "box-2d25p": 0.75,
    "box-2d49p": 0.75,
    "heat-3d": 0.35,
    "box-3d27p": 0.70,
}
"""Shares of the multiply-adds that the cores can make, in float64."""

GPU_WANTED = {
    ("heat-1d", "equal"): (6000, 1096),
    ("star-1d5p", "random"): (2500, 548),
    ("heat-2d", "equal"): (1800, 874),
    ("star-2d9p", "random"): (1000, 552),
    ("star-2d13p", "random"): (600, 218),
    ("box-2d9p", "random"): (1300, 680),
    ("box-2d9p", "symmetric"): (None, 680),
    ("box-2d25p", "random"): (420, 340),
    ("box-2d25p", "symmetric"): (500, 340),
    ("box-2d49p", "random"): (220, 200),
    ("box-2d49p", "symmetric"): (400, 200),
    ("heat-3d", "equal"): (500, 227),
    ("box-3d27p", "random"): (250, 96),
    ("box-3d27p", "symmetric"): (None, 96),
}
"""GStencil/s in float64 by stencil and weights: what was wanted, and the best of EBISU,
LoRAStencil, AN5D, FlashFFTStencil and ConvStencil.
"""

TENSOR_WANTED = {
    "gpu.dual_tessellation": {
        "heat-1d": 921,
        "star-1d5p": 645,
        "heat-2d": 502,
        "box-2d9p": 502,
        "box-2d49p": 168,
        "heat-3d": 138,
        "box-3d27p": 78,
    },
    "gpu.trapezoid": {"heat-2d": 600, "box-2d9p": 600, "box-2d25p": 380, "box-2d49p": 220},
}
"""GStencil/s of the methods that multiply on FP64 tensor cores, weights without symmetry."""

HALF_WANTED = {
    "heat-2d": (725, 1088, None),
    "star-2d9p": (487, 731, None),
    "box-2d9p": (564, 846, 2208),
    "box-2d25p": (416, 624, 954),
    "box-2d49p": (None, None, 620),
}
"""GStencil/s in float16 at 10240 x 10240: TCStencil's own code without feedback, what was wanted
with several steps at once, and SPIDER with algebraic fusion to radius 7.
"""

PAPER_LADDER = {
    "in shared memory": (1.22, 2.70, 1.67),
    "+ tensor cores": (1.76, 1.68, 1.44),
    "+ padding": (1.01, 1.14, 1.10),
    "+ dirty bits": (1.04, 1.19, 1.13),
}
"""Factors of the rungs in Figure 6 of the ConvStencil paper, on an A100."""

LADDER_STENCILS = ("heat-1d", "box-2d9p", "box-3d27p")

PLATE_UPDATES = 9600**2 * 3.8e6
PAPER_CASE_STUDY = {
    "one sweep per step on the CPU": ("2.8 (its naive)", "124,448.5 s"),
    "CPU": ("14.8", "27,709.1 s"),
    "GPU": ("63.3", "5,597.4 s"),
    "GPU, float32": ("", ""),
}
"""Rates and times in Table 3 of the Tetris paper."""

SHOWN = ("heat-1d", "heat-2d", "box-2d9p", "box-2d49p", "heat-3d", "box-3d27p")
"""Stencils among the headlines."""


def cpu_goals(read: Read) -> TextTable:
    """The best CPU method of each stencil beside what was wanted."""
    rows = []
    for kernel in _kernels(read("cpu.json"), "kernels"):
        if kernel["dtype"] == "float64":
            best, wanted = _fastest(kernel), CPU_WANTED[kernel["stencil"]]
            cells = [kernel["stencil"], best["name"], billions(best["steady"]["median"])]
            cells += [f"{best['ratio_to_prange']:.2f}", f"{wanted:.0%}"]
            rows.append([*cells, *_judged(best["share_of_fma"], wanted, percent)])
    numbers = ("GStencil/s", "x prange", "wanted of FMA limit", "measured", "reached")
    return TextTable(
        "The fastest method of each stencil, float64", ("stencil", "method", *numbers), rows, 2
    )


def gpu_goals(read: Read) -> TextTable:
    """The best GPU method of each stencil beside what was wanted and what others have."""
    rows = []
    for kernel in _kernels(read("gpu.json"), "gpu_kernels"):
        best = _fastest(kernel)
        wanted, peer = GPU_WANTED[kernel["stencil"], kernel["weights"]]
        measured = best["steady"]["median"] / 1e9
        cells = [kernel["stencil"], kernel["weights"], best["name"], _rounded(wanted)]
        rows.append([*cells, *_judged(measured, wanted, _rounded), _rounded(peer)])
    header = ("stencil", "weights", "method", "wanted", "measured", "reached", "best peer")
    return TextTable("GStencil/s of the fastest method, float64", header, rows, 3)


def tensor_goals(read: Read) -> TextTable:
    """Methods on FP64 tensor cores beside what was wanted of each."""
    rows = []
    for kernel in _kernels(read("gpu.json"), "gpu_kernels"):
        name = kernel["stencil"]
        if kernel["weights"] != "symmetric" and any(name in of for of in TENSOR_WANTED.values()):
            rows.append([name])
            for method, wanted in TENSOR_WANTED.items():
                rate = _row(kernel, method)["steady"]["median"] / 1e9
                rows[-1] += [_rounded(wanted.get(name)), *_judged(rate, wanted.get(name), _rounded)]
    header = ["stencil"]
    for method in TENSOR_WANTED:
        header += [f"wanted of {method}", "measured", "reached"]
    return TextTable("GStencil/s on FP64 tensor cores", header, rows, 1)


def missed_goals(read: Read) -> TextTable:
    """Kernels alone that stay below what was wanted of their methods."""
    rows = []
    for case in read("gpu-counters.json")["float64"]["gpu_counters"]:
        wanted: float | None = GPU_WANTED[case["stencil"], case["weights"]][0]
        if case["method"] in TENSOR_WANTED:
            own = TENSOR_WANTED[case["method"]].get(case["stencil"])
            wanted = None if case["weights"] == "symmetric" else own
        if case["method"] != "gpu.plain" and wanted is not None and case["rate"] < 1e9 * wanted:
            cells = [case["stencil"], case["weights"], case["method"], _rounded(wanted)]
            rows.append([*cells, billions(case["rate"]), billions(case["sustained"]["rate"])])
    header = ("stencil", "weights", "method", "wanted", "one launch", "sustained")
    return TextTable("GStencil/s of kernels alone that miss what was wanted", header, rows, 3)


def half_goals(read: Read) -> TextTable:
    """Both methods of float16 beside what was wanted and what others have."""
    alone = read("half-tiles.json")["gpu.tcstencil"]["rows"]
    rows = []
    for kernel in _kernels(read("half.json"), "gpu_kernels"):
        name = kernel["stencil"]
        if name in HALF_WANTED and kernel["weights"] != "symmetric":
            theirs, wanted, spider = map(_rounded, HALF_WANTED[name])
            one_step = next(
                row
                for row in alone
                if (row["stencil"], row["parameters"]["steps_per_block"]) == (name, 1)
            )

            fused = [_row(kernel, method) for method in ("gpu.tcstencil", "gpu.sparse")]
            banded, sparse = (
                f"{billions(row['steady']['median'])} ({row['parameters']['steps_per_block']})"
                for row in fused
            )
            cells = [name, theirs, billions(one_step["median"]), wanted, banded]
            rows.append([*cells, spider, sparse])

    header = ("stencil", "TCStencil's own code", "gpu.tcstencil, one step per launch")
    header += ("wanted with fusion", "gpu.tcstencil (steps)", "SPIDER", "gpu.sparse (steps)")
    return TextTable("GStencil/s at 10240 x 10240, float16", header, rows, 1)


def convstencil_ladder(read: Read) -> TextTable:
    """What each technique of ConvStencil adds, beside what the paper says."""
    ladders = {
        ladder["stencil"]: {row["name"]: row["over_previous"] for row in ladder["steps"]}
        for ladder in _kernels(read("gpu-breakdown.json"), "gpu_breakdown")
        if ladder["figure"] == CONVSTENCIL
    }
    rows = []
    for rung, factors in PAPER_LADDER.items():
        measured = (ladders[name][rung] for name in LADDER_STENCILS)
        rows.append([rung, *(f"{factor:.2f}" for factor in (*factors, *measured))])
    header = ["rung", *(f"{name}, paper" for name in LADDER_STENCILS), *LADDER_STENCILS]
    return TextTable("Times the rung above", header, rows, 1)


def case_study(read: Read) -> TextTable:
    """Table 3 of the Tetris paper remade."""
    (result,) = read("case-study.json").values()
    slowest = min(row["points_per_second"] for row in result["rows"].values())
    rows = []
    for name, (paper_rate, paper_seconds) in PAPER_CASE_STUDY.items():
        row = result["rows"][name]
        if row["computed"]:
            how = f"computed from {row['steps']:,} steps"
        else:
            how = f"run ({PLATE_UPDATES / row['points_per_second']:.0f} s of it computing)"

        cells = [f"{name}, `{row['methods'][0]}`", how]
        cells.append(_with_commas(row["points_per_second"] / 1e9))
        cells += [f"{row['seconds']:,.0f} s", f"{row['points_per_second'] / slowest:.3g}"]
        rows.append([*cells, paper_rate, paper_seconds])

    numbers = ("GStencil/s", "time to 3.8e6 steps", "x first", "paper: GStencil/s", "time")
    return TextTable("The copper plate", ("devices, method", "how", *numbers), rows, 2)


def headlines(read: Read) -> TextTable:
    """The fastest of everything."""
    rows = [
        *_of_kernels(
            read, "cpu", "kernels", lambda row, _: f"{row['ratio_to_prange']:.1f} x prange"
        ),
        *_of_kernels(read, "gpu", "gpu_kernels", _times_one_sweep),
        *_of_kernels(read, "half", "gpu_kernels", _times_one_sweep),
        *_of_devices(read),
        *_of_case_study(read),
    ]
    words = ("page", "stencil, grid", "dtype", "device", "date", "method")
    return TextTable(
        "The fastest method of each", (*words, "GStencil/s", "that is"), rows, len(words)
    )


def _of_kernels(
    read: Read, page: str, key: str, beside: Callable[[Row, Bounds], str]
) -> Iterator[list[str]]:
    for result in read(f"{page}.json").values():
        found = read_result(result)
        cases, limits = found.kernels or found.gpu_kernels, found.limits or found.gpu_limits
        for kernel, case in zip(result[key], cases, strict=True):
            known = kernel["stencil"] in SHOWN and kernel.get("weights") != "symmetric"
            if known and kernel["dtype"] != "float32":
                best = _fastest(kernel)
                device = result.get("gpu", {}).get("name")
                cells = [f"[{page}]({page}.md)", _where(kernel), kernel["dtype"]]
                cells += [device or f"{result['threads']} threads, {result['cpu']}", result["date"]]
                rate, bounds = best["steady"]["median"], bounds_of(case, limits)
                yield [*cells, best["name"], billions(rate), beside(best, bounds)]


def _of_devices(read: Read) -> Iterator[list[str]]:
    """Several GPUs, and a grid that is larger than one may use."""
    results = [read_result(data) for data in read("devices.json").values()]
    every = measurements(results)
    for result in results:
        for m in measurements([result]):
            alone = one_gpu(every, m)
            if alone is not None and m.all_gpus and (m.gpus > 1 or m.streamed):
                first = m.row.shares[0]

                if m.streamed:
                    where, word = f"1 {first.device}, streamed", "of its rate in GPU memory"
                else:
                    ranks = m.case.ranks
                    how = "in one process" if ranks == 1 else f"on {ranks} ranks"
                    where, word = f"{m.gpus} {first.device} {how}", "x one GPU"

                cells = ["[devices](devices.md)", m.name, m.case.dtype, where]
                cells += [result.date, first.method, billions(m.rate)]
                yield [*cells, f"{m.rate / alone.rate:.2f} {word}"]


def _of_case_study(read: Read) -> Iterator[list[str]]:
    (result,) = read("case-study.json").values()
    for name, dtype in (("GPU", "float64"), ("GPU, float32", "float32")):
        row = result["rows"][name]
        cells = ["[case study](case-study.md)", "heat-2d, 9600 x 9600", dtype, "NVIDIA H200"]
        cells += [result["date"], *row["methods"], billions(row["points_per_second"])]
        yield [*cells, f"{row['steps'] / 1e6:.1f} million steps in {row['seconds']:.0f} s"]


def _kernels(runs: Mapping[str | None, Mapping[str, Any]], key: str) -> list[Row]:
    return [kernel for result in runs.values() for kernel in result[key]]


def _fastest(kernel: Row) -> Row:
    """Of the methods; loops and libraries beside them have names without a point."""
    own = (row for row in kernel["rows"] if row["name"].startswith(("cpu.", "gpu.")))
    best: Row = max(own, key=lambda row: float(row["steady"]["median"]))
    return best


def _row(kernel: Row, method: str) -> Row:
    row: Row = next(row for row in kernel["rows"] if row["name"] == method)
    return row


def _where(case: Row) -> str:
    return f"{case['stencil']}, {grid(case['shape'])}"


def _times_one_sweep(row: Row, bounds: Bounds) -> str:
    return f"{row['steady']['median'] / bounds.memory:.1f} x one sweep"


def _rounded(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.0f}"


def _with_commas(rate: float) -> str:
    return f"{rate:.3g}" if rate < 999.5 else f"{rate:,.0f}"


def _judged(
    measured: float, wanted: float | None, write: Callable[[float], str]
) -> tuple[str, str]:
    """What was measured, and whether it is enough."""
    return write(measured), "" if wanted is None else "yes" if measured >= wanted else "no"


SUMMARIES: Mapping[str, Callable[[Read], TextTable]] = {
    "cpu goals": cpu_goals,
    "gpu goals": gpu_goals,
    "tensor goals": tensor_goals,
    "half goals": half_goals,
    "ladder of ConvStencil": convstencil_ladder,
    "missed goals": missed_goals,
    "case study": case_study,
    "headlines": headlines,
    "bodies on a GPU": bodies_on_a_gpu,
    "heat on a GPU": heat_on_a_gpu,
    "bodies on two cores": bodies_on_two_cores,
    "bodies beside peers": bodies_beside_peers,
    "equations on a GPU": equations_on_a_gpu,
    "matrix": matrix,
    "matrix rates": matrix_rates,
    "matrix reasons": matrix_reasons,
    "jumps": jumps,
    "steady states": steady_beside_pyamg,
    "equations on two cores": equations_on_two_cores,
    "equations on one core": equations_on_one_and_two_cores,
    "newcomer": newcomer,
    "first choice": first_choice,
    "first choice, smaller": first_choice_smaller,
}
"""By the names that pages have for them."""
