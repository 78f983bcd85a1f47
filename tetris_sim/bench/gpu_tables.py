"""Results of the GPU benchmarks as tables; see `tables.py`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tetris_sim.bench.cells import Table, billions, grid, parameters, percent
from tetris_sim.method import STEPS_PER_BLOCK

TABLE_5 = {
    "heat-2d": {"TCStencil, A100": (0.4940, 0.91), "ConvStencil, A100": (0.0342, 0.39)},
    "box-2d9p": {"TCStencil, A100": (0.4535, 1.29), "ConvStencil, A100": (0.0342, 0.39)},
}
"""(UGA, BC/R) by stencil and method: Table 5 of the ConvStencil paper (PPoPP 2024)."""

_SHARES = {"SM": "sm", "L1": "l1", "L2": "l2", "DRAM": "dram", "FP64": "fp64_pipe"}


def gpu_tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """All that the result has something for."""
    if "gpu_limits" in result:
        yield gpu_limits_table(result["gpu_limits"])
    if "gpu_kernels" in result:
        yield gpu_table(result["gpu_kernels"])
        yield gpu_faces_table(result["gpu_kernels"])
    if "gpu_sizes" in result:
        yield gpu_sizes_table(result["gpu_sizes"])
    if "gpu_breakdown" in result:
        yield gpu_breakdown_table(result["gpu_breakdown"])
    if "gpu_counters" in result:
        yield gpu_counters_table(result["gpu_counters"])
        yield gpu_conflicts_table(result["gpu_counters"])


def gpu_limits_table(limits: Mapping[str, Any]) -> Table:
    """The measured limits of a GPU, before and after."""
    before, after = limits["before"], limits["after"]
    rows = [
        (
            "copy in memory",
            "GB/s",
            *(billions(found["copy"]["median"]) for found in (before, after)),
        )
    ]
    for dtype in before["fma"]:
        rates = [billions(found["fma"][dtype]["median"]) for found in (before, after)]
        rows.append((f"multiply-adds, {dtype}, CUDA cores", "1e9/s", *rates))
    if before["tensor"] is not None:
        rates = [billions(found["tensor"]["median"]) for found in (before, after)]
        rows.append(("multiply-adds, float64, tensor cores", "1e9/s", *rates))
    return Table(
        "Limits of the GPU (copies: read plus written)",
        ("limit", "unit", "before", "after"),
        rows,
        2,
    )


def gpu_table(kernels: Sequence[Mapping[str, Any]]) -> Table:
    """Rates of every candidate on a GPU and what they are of the limits."""
    words = ("stencil", "weights", "grid", "dtype", "candidate", "parameters")
    numbers = ("GStencil/s", "spread", "of FMA limit", "x one sweep")
    rows = []
    for kernel in kernels:
        for row in kernel["rows"]:
            steady = row["steady"]
            cells = [
                kernel["stencil"],
                kernel["weights"],
                grid(kernel["shape"]),
                kernel["dtype"],
                row["name"],
            ]
            cells += [parameters(row["parameters"]), billions(steady["median"])]
            cells += [f"{billions(steady['low'])}..{billions(steady['high'])}"]
            rows.append([*cells, percent(row["share_of_fma"]), f"{row['times_one_sweep']:.2f}"])
    title = (
        "Steady state on the whole grid, faces included; x one sweep: multiples of what memory "
        "allows a single step"
    )
    return Table(title, (*words, *numbers), rows, len(words))


def gpu_faces_table(kernels: Sequence[Mapping[str, Any]]) -> Table:
    """What faces cost the fastest method."""
    kinds = list(dict.fromkeys(kind for kernel in kernels for kind in kernel["faces"]))
    rows = []
    for kernel in kernels:
        best = max(kernel["rows"], key=lambda row: float(row["steady"]["median"]))
        rates = [
            billions(kernel["faces"][kind]["median"]) if kind in kernel["faces"] else ""
            for kind in kinds
        ]
        rows.append([kernel["stencil"], kernel["weights"], kernel["dtype"], best["name"], *rates])
    title = "GStencil/s of the fastest method with other faces"
    return Table(title, ("stencil", "weights", "dtype", "method", *kinds), rows, 4)


def gpu_sizes_table(sweeps: Sequence[Mapping[str, Any]]) -> Table:
    """Rates against size, a column for each line of the figure, with the steps per launch."""
    labels = list(
        dict.fromkeys(row["name"] for sweep in sweeps for p in sweep["points"] for row in p["rows"])
    )
    rows = []
    for sweep in sweeps:
        for point in sweep["points"]:
            cells = {row["name"]: _rate_and_steps(row) for row in point["rows"]}
            rows.append(
                [
                    sweep["stencil"],
                    sweep["dtype"],
                    grid(point["shape"]),
                    *(cells.get(label, "") for label in labels),
                ]
            )
    title = "GStencil/s against size, whole steps, in parentheses steps per launch"
    return Table(title, ("stencil", "dtype", "grid", *labels), rows, 3)


def _rate_and_steps(row: Mapping[str, Any]) -> str:
    return f"{billions(row['steady']['median'])} ({row['parameters'].get(STEPS_PER_BLOCK, 1)})"


def gpu_breakdown_table(ladders: Sequence[Mapping[str, Any]]) -> Table:
    """What each technique adds."""
    words = ("figure", "stencil", "grid", "technique", "parameters")
    rows = []
    for ladder in ladders:
        for row in ladder["steps"]:
            cells = [ladder["figure"], ladder["stencil"], grid(ladder["shape"]), row["name"]]
            cells += [parameters(row["parameters"]), billions(row["steady"]["median"])]
            cells += [
                f"{row[key]:.2f}" for key in ("over_first", "over_previous", "times_one_sweep")
            ]
            rows.append(cells)
    header = (*words, "GStencil/s", "x first", "x above", "x one sweep")
    return Table("What each technique adds, kernels alone", header, rows, len(words))


def gpu_counters_table(cases: Sequence[Mapping[str, Any]]) -> Table:
    """How busy each part of the GPU was during a launch, and how fast many launches are."""
    rows = []
    for case in cases:
        found, sustained = case["counters"], case["sustained"]
        cells = [
            case["stencil"],
            case["weights"],
            case["method"],
            (case["stall"] or "").replace("_", " "),
        ]
        cells += [
            str(case["parameters"][STEPS_PER_BLOCK]),
            _number(case["rate"], 1e9),
            _number(found["clock"], 1e9),
        ]
        tensor = "half_tensor_pipe" if case["dtype"] == "float16" else "fp64_tensor_pipe"
        cells += [
            _share(found[name]) for name in (*_SHARES.values(), tensor, "issue_active", "occupancy")
        ]
        cells += [
            _number(found["registers"]),
            _number(sustained["rate"], 1e9),
            _number(sustained["clock"], 1e9),
        ]
        rows.append([*cells, _number(sustained["power"])])
    header = ("stencil", "weights", "method", "waits for", "steps", "GStencil/s", "GHz", *_SHARES)
    header += ("tensor", "issue", "occupancy", "registers")
    title = (
        "Counters of single launches: shares of what each part of the GPU can do, and what most "
        "warps wait for; last three columns: many launches"
    )
    return Table(title, (*header, "sustained GStencil/s", "GHz", "W"), rows, 4)


def gpu_conflicts_table(cases: Sequence[Mapping[str, Any]]) -> Table:
    """Uncoalesced accesses and bank conflicts, beside those of the ConvStencil paper."""
    rows = []
    for case in cases:
        cells = _conflicts(case["uncoalesced"], case["bank_conflicts_per_request"])
        rows.append([case["stencil"], case["weights"], case["method"], *cells])
    for stencil, others in TABLE_5.items():
        rows += [
            [stencil, "", f"{name} (paper)", *_conflicts(*found)] for name, found in others.items()
        ]
    title = "Uncoalesced global accesses (UGA) and bank conflicts per request (BC/R)"
    return Table(title, ("stencil", "weights", "method", "UGA", "BC/R"), rows, 3)


def _conflicts(uncoalesced: float | None, per_request: float | None) -> list[str]:
    return [
        "" if uncoalesced is None else f"{uncoalesced:.2%}",
        "" if per_request is None else f"{per_request:.2f}",
    ]


def _number(value: float | None, unit: float = 1.0) -> str:
    return (
        ""
        if value is None
        else f"{value / unit:.3g}"
        if value < 999.5 * unit
        else f"{value / unit:.0f}"
    )


def _share(value: float | None) -> str:
    """Percent as Nsight Compute gives them."""
    return "" if value is None else f"{value:.0f}%"
