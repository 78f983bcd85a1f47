"""A result of the benchmark as tables, for the terminal and for the pages of docs/benchmarks/.

Everything comes from the plain data of the result, so a page can be made again from the JSON file
beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tetris_sim.bench.cells import Table, billions, grid, mebibytes, parameters, percent
from tetris_sim.bench.cpu import compare_precisions
from tetris_sim.bench.device_tables import devices_table, left_out
from tetris_sim.bench.gpu_tables import gpu_tables
from tetris_sim.wording import listed


def as_text(result: Mapping[str, Any]) -> str:
    """The result for the terminal: who and when, then the tables in columns."""
    parts = [describe_machine(result)]
    for table in tables(result):
        widths = [max(map(len, column)) for column in zip(table.header, *table.rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if k < table.words else cell.rjust(width)
                for k, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (table.header, *table.rows)
        ]
        parts.append("\n".join([f"{table.title}:", *lines]))
    return "\n\n".join([*parts, *notes(result)])


def as_markdown(result: Mapping[str, Any]) -> str:
    """The result for a page: who and when, then Markdown tables."""
    parts = [f"{describe_machine(result)}."]
    parts += [table_as_markdown(table) for table in tables(result)]
    return "\n\n".join([*parts, *notes(result)]) + "\n"


def table_as_markdown(table: Table) -> str:
    """Its title and its cells, for a page."""
    rule = ["---" if k < table.words else "---:" for k in range(len(table.header))]
    lines = [f"| {' | '.join(row)} |" for row in (table.header, rule, *table.rows)]
    return "\n".join([f"{table.title}:", "", *lines])


def describe_machine(result: Mapping[str, Any]) -> str:
    """Machine, date, commit and versions in a line."""
    versions = ", ".join(
        f"{name} {result['versions'][name]}" for name in ("python", "numpy", "numba", "llvmlite")
    )
    device = f"{result['cpu']}, {result['threads']} threads"
    if "gpu" in result:
        device = (
            f"{result['gpu']['name']} ({result['gpu']['architecture']}, CUDA "
            f"{result['gpu']['driver']})"
        )
    return f"{device}, {result['date']}, commit {result['commit']}, {versions}"


def tables(result: Mapping[str, Any]) -> Iterator[Table]:
    """All that the result has something for."""
    if "limits" in result:
        yield limits_table(result["limits"])
    yield from gpu_tables(result)
    if "kernels" in result:
        yield kernels_table(result["kernels"])
        yield bounds_table(result["kernels"])
        if compare_precisions(result["kernels"]):
            yield precisions_table(result["kernels"])
    if "devices" in result:
        yield devices_table(result["devices"])
    if "breakdown" in result:
        yield breakdown_table(result["breakdown"])
    if "sizes" in result:
        yield sizes_table(result["sizes"])
        yield threads_table(result["threads_sweep"])


def notes(result: Mapping[str, Any]) -> list[str]:
    """Why something is not in the tables: a sentence each."""
    refused: dict[tuple[str, str], list[str]] = {}  # (what, why): for which stencils
    for kernel in (*result.get("kernels", ()), *result.get("gpu_kernels", ())):
        for name, reason in kernel["refusals"].items():
            refused.setdefault((name, reason), []).append(kernel["stencil"])
    for ladder in (*result.get("breakdown", ()), *result.get("gpu_breakdown", ())):
        for label, reason in ladder["missing"].items():
            refused.setdefault((f'"{label}"', reason), []).append(ladder["stencil"])
    found = [
        f"{what} not for {listed(list(dict.fromkeys(names)), 'and')}: {why}."
        for (what, why), names in refused.items()
    ]
    found += [
        f"{label} not for {sweep['stencil']} on {grid(point['shape'])} points: {reason}."
        for sweep in result.get("gpu_sizes", ())
        for point in sweep["points"]
        for label, reason in point["missing"].items()
    ]
    found += left_out(result.get("devices", ()))
    return ["\n".join(dict.fromkeys(found))] if found else []


def limits_table(limits: Mapping[str, Any]) -> Table:
    """The measured limits, before and after."""
    before, after = limits["before"], limits["after"]
    rows = []
    for dtype in before["fma"]:
        for key, name in (("fma", "all threads"), ("fma_one_thread", "one thread")):
            rates = [billions(found[key][dtype]["median"]) for found in (before, after)]
            rows.append((f"multiply-adds, {dtype}, {name}", "1e9/s", *rates))
    copies = [
        ("copy in memory", "copy"),
        ("copy in memory, past the caches", "copy_past_caches"),
        ("load, L1", "load"),
    ]
    for label, key in copies:
        rows.append((label, "GB/s", *(billions(found[key]["median"]) for found in (before, after))))
    for one, other in zip(before["caches"], after["caches"], strict=True):
        rates = [billions(cache["copy"]["median"]) for cache in (one, other)]
        rows.append((f"copy in L{one['level']}", "GB/s", *rates))
    return Table(
        "Limits of the machine (copies: read plus written)",
        ("limit", "unit", "before", "after"),
        rows,
        2,
    )


def kernels_table(kernels: Sequence[Mapping[str, Any]]) -> Table:
    """Rates of every candidate and what they are of the limits."""
    words = ("stencil", "grid", "dtype", "candidate", "parameters")
    numbers = (
        "GStencil/s",
        "spread",
        "x prange",
        "of FMA limit",
        "of sweep limit",
        "end to end",
        "memory at hand",
    )
    rows = []
    for kernel in kernels:
        for row in kernel["rows"]:
            steady, whole = row["steady"], row.get("end_to_end")
            cells = [kernel["stencil"], grid(kernel["shape"]), kernel["dtype"], row["name"]]
            cells += [parameters(row["parameters"]), billions(steady["median"])]
            cells += [
                f"{billions(steady['low'])}..{billions(steady['high'])}",
                f"{row['ratio_to_prange']:.2f}",
            ]
            cells += [percent(row["share_of_fma"]), percent(row.get("share_of_sweep_bound"))]
            shares = [
                whole and whole.get(key) for key in ("share_of_steady", "share_without_memory")
            ]
            rows.append([*cells, *map(percent, shares)])
    return Table(
        "Steady state, and end to end as a share of it", (*words, *numbers), rows, len(words)
    )


def bounds_table(kernels: Sequence[Mapping[str, Any]]) -> Table:
    """What each stencil cannot exceed, and which limit is tighter for a sweep through memory."""
    rows = [
        [
            kernel["stencil"],
            kernel["dtype"],
            {"fma": "multiply-adds", "memory": "memory"}[kernel["bounds"]["tighter"]],
            billions(kernel["bounds"]["fma"]),
            billions(kernel["bounds"]["memory"]),
        ]
        for kernel in kernels
    ]
    header = ("stencil", "dtype", "tighter for a sweep through memory", "FMA limit", "memory limit")
    return Table("Limits in GStencil/s", header, rows, 3)


def precisions_table(kernels: Sequence[Mapping[str, Any]]) -> Table:
    """Both precisions beside each other."""
    rows = [
        [
            pair["stencil"],
            pair["name"],
            billions(pair["float64"]),
            billions(pair["float32"]),
            f"{pair['ratio']:.2f}",
        ]
        for pair in compare_precisions(kernels)
    ]
    return Table(
        "GStencil/s by precision", ("stencil", "candidate", "float64", "float32", "ratio"), rows, 2
    )


def breakdown_table(ladders: Sequence[Mapping[str, Any]]) -> Table:
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
    return Table("What each technique adds", header, rows, 5)


def sizes_table(sweeps: Sequence[Mapping[str, Any]]) -> Table:
    """Cost against size, with the parts of the model."""
    rows = [
        [
            sweep["stencil"],
            sweep["dtype"],
            grid(point["shape"]),
            row["name"],
            mebibytes(point),
            *_costs(row),
        ]
        for sweep in sweeps
        for point in sweep["points"]
        for row in point["rows"]
    ]
    header = ("stencil", "dtype", "grid", "candidate", "MiB", *_COSTS)
    return Table(
        "Cost against size, ns per point update, beside the data transfer model", header, rows, 4
    )


def threads_table(sweeps: Sequence[Mapping[str, Any]]) -> Table:
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
    return Table(
        "Cost against threads, ns per point update, beside the data transfer model", header, rows, 4
    )


_COSTS = ("GStencil/s", "measured", "T_d", "its parts, outermost first", "multiply-adds")


def _costs(row: Mapping[str, Any]) -> list[str]:
    parts = " + ".join(f"{ns:.3f}" for ns in row["transfer_ns"].values())
    ns = [f"{row[key]:.3f}" for key in ("ns", "transfer_total_ns", "fma_ns")]
    return [billions(row["steady"]["median"]), *ns[:2], parts, ns[2]]
