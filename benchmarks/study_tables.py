"""Results of the studies as tables, for their pages and the terminal: ladders, sweeps and counters.

A study is the plain data of a `Result` with rows of its own beside it, as its JSON file has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tetris_sim.bench import tables
from tetris_sim.bench.result import read_result
from tetris_sim.bench.tables import TextTable, billions, grid, parameters, percent
from tetris_sim.model.method import STEPS_PER_BLOCK
from tetris_sim.support.wording import listed

Study = Mapping[str, Any]

TABLE_5 = {
    "heat-2d": {"TCStencil, A100": (0.4940, 0.91), "ConvStencil, A100": (0.0342, 0.39)},
    "box-2d9p": {"TCStencil, A100": (0.4535, 1.29), "ConvStencil, A100": (0.0342, 0.39)},
}
"""(UGA, BC/R) by stencil and method: Table 5 of the ConvStencil paper (PPoPP 2024)."""


def as_text(study: Study) -> str:
    """A study or a result of `bench` for the terminal."""
    return tables.as_text(read_result(study), study_tables(study), notes(study))


def as_markdown(study: Study) -> str:
    """A study or a result of `bench` for a page."""
    return tables.as_markdown(read_result(study), study_tables(study), notes(study))


def study_tables(study: Study) -> Iterator[TextTable]:
    """All that the study has something for."""
    if "gpu_sizes" in study:
        yield gpu_sizes_table(study["gpu_sizes"])
    if "gpu_breakdown" in study:
        yield gpu_breakdown_table(study["gpu_breakdown"])
    if "gpu_counters" in study:
        yield gpu_counters_table(study["gpu_counters"])
        yield gpu_conflicts_table(study["gpu_counters"])
    if "breakdown" in study:
        yield breakdown_table(study["breakdown"])
    if "sizes" in study:
        yield sizes_table(study["sizes"])
        yield threads_table(study["threads_sweep"])


def notes(study: Study) -> list[str]:
    """Why something is not in the tables: a sentence each."""
    missing: dict[tuple[str, str], list[str]] = {}  # stencils by (what, why)
    for ladder in (*study.get("breakdown", ()), *study.get("gpu_breakdown", ())):
        for label, reason in ladder["missing"].items():
            missing.setdefault((label, reason), []).append(ladder["stencil"])
    sentences = [
        f'"{label}" not for {listed(list(dict.fromkeys(names)), "and")}: {reason}.'
        for (label, reason), names in missing.items()
    ]
    sentences += [
        f"{label} not for {sweep['stencil']} on {grid(point['shape'])} points: {reason}."
        for sweep in study.get("gpu_sizes", ())
        for point in sweep["points"]
        for label, reason in point["missing"].items()
    ]
    return sentences


_SHARES = {"SM": "sm", "L1": "l1", "L2": "l2", "DRAM": "dram", "FP64": "fp64_pipe"}


def gpu_sizes_table(sweeps: Sequence[Mapping[str, Any]]) -> TextTable:
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
    return TextTable(title, ("stencil", "dtype", "grid", *labels), rows, 3)


def _rate_and_steps(row: Mapping[str, Any]) -> str:
    return f"{billions(row['steady']['median'])} ({row['parameters'].get(STEPS_PER_BLOCK, 1)})"


def gpu_breakdown_table(ladders: Sequence[Mapping[str, Any]]) -> TextTable:
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
    return TextTable("What each technique adds, kernels alone", header, rows, len(words))


def gpu_counters_table(cases: Sequence[Mapping[str, Any]]) -> TextTable:
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
    return TextTable(title, (*header, "sustained GStencil/s", "GHz", "W"), rows, 4)


def gpu_conflicts_table(cases: Sequence[Mapping[str, Any]]) -> TextTable:
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
    return TextTable(title, ("stencil", "weights", "method", "UGA", "BC/R"), rows, 3)


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


def breakdown_table(ladders: Sequence[Mapping[str, Any]]) -> TextTable:
    """What each technique adds."""
    header = (
        "stencil",
        "grid",
        "dtype",
        "technique",
        "parameters",
        "GStencil/s",
        "x plain",
        "x above",
        "of FMA limit",
    )
    rows = []
    for ladder in ladders:
        for row in ladder["steps"]:
            cells = [ladder["stencil"], grid(ladder["shape"]), ladder["dtype"], row["name"]]
            cells += [parameters(row["parameters"]), billions(row["steady"]["median"])]
            cells += [
                f"{row['over_first']:.2f}",
                f"{row['over_previous']:.2f}",
                percent(row["share_of_fma"]),
            ]
            rows.append(cells)
    return TextTable("What each technique adds", header, rows, 5)


def sizes_table(sweeps: Sequence[Mapping[str, Any]]) -> TextTable:
    """Cost against size, with the parts of the model."""
    rows = [
        [
            sweep["stencil"],
            sweep["dtype"],
            grid(point["shape"]),
            row["name"],
            f"{point['bytes'] / 2**20:.0f}",
            *_costs(row),
        ]
        for sweep in sweeps
        for point in sweep["points"]
        for row in point["rows"]
    ]
    header = ("stencil", "dtype", "grid", "candidate", "MiB", *_COSTS)
    return TextTable(
        "Cost against size, ns per point update, beside the data transfer model", header, rows, 4
    )


def threads_table(sweeps: Sequence[Mapping[str, Any]]) -> TextTable:
    """Cost against threads, with the parts of the model."""
    rows = [
        [
            sweep["stencil"],
            sweep["dtype"],
            grid(sweep["shape"]),
            row["name"],
            str(point["threads"]),
            *_costs(row),
        ]
        for sweep in sweeps
        for point in sweep["points"]
        for row in point["rows"]
    ]
    header = ("stencil", "dtype", "grid", "candidate", "threads", *_COSTS)
    return TextTable(
        "Cost against threads, ns per point update, beside the data transfer model", header, rows, 4
    )


_COSTS = ("GStencil/s", "measured", "T_d", "its parts, outermost first", "multiply-adds")


def _costs(row: Mapping[str, Any]) -> list[str]:
    parts = " + ".join(f"{ns:.3f}" for ns in row["transfer_ns"].values())
    ns = [f"{row[key]:.3f}" for key in ("ns", "transfer_total_ns", "fma_ns")]
    return [billions(row["steady"]["median"]), *ns[:2], parts, ns[2]]
