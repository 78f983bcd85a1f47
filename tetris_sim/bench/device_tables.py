"""Results of `bench devices` as a table; see `tables.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tetris_sim.bench.cells import Table, billions, grid, percent

_NOTHING = " gets nothing: "  # stands in the sentence of a plan about a worker that it leaves out


def devices_table(cases: Sequence[Mapping[str, Any]]) -> Table:
    """Rates of every set of devices, who got what, how long halos kept them waiting, and how idle
    the idlest was.
    """
    words = ("stencil", "grid", "dtype", "ranks", "threads", "devices", "shares")
    numbers = (
        "GStencil/s",
        "spread",
        "predicted",
        "of the sum alone",
        "steps per block",
        "exchange",
        "idle",
    )
    rows = []
    for case in cases:
        for each in case["sets"]:
            threads = "all" if case["threads"] is None else str(case["threads"])
            cells = [
                case["stencil"],
                grid(case["shape"]),
                case["dtype"],
                str(case["ranks"]),
                threads,
                _devices(each),
            ]
            cells += [_shares(each["shares"]), billions(each["steady"]["median"])]
            cells += [f"{billions(each['steady']['low'])}..{billions(each['steady']['high'])}"]
            cells += [billions(each["predicted"]), percent(each["of_sum"]), str(each["time_block"])]
            idle = max((row["measured_idle"] for row in each["rows"]), default=None)
            rows.append([*cells, percent(each["exchange_share"]), percent(idle)])
    return Table(
        "Whole grids on sets of devices, steady state, halos included",
        (*words, *numbers),
        rows,
        len(words),
    )


def left_out(cases: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why devices got nothing, in the words of the plans."""
    return [
        f"{case['stencil']} on {each['devices']}, {case['threads']} threads: {reason}"
        for case in cases
        for each in case["sets"]
        for reason in each["reasons"]
        if _NOTHING in reason
    ]


def _devices(case: Mapping[str, Any]) -> str:
    return (
        f"{case['devices']}, each its share by speed alone"
        if case["forced"]
        else str(case["devices"])
    )


def _shares(shares: Sequence[Mapping[str, Any]]) -> str:
    total = sum(share["points"] for share in shares)
    several = len({share["rank"] for share in shares}) > 1
    parts = []
    for share in shares:
        name = f"rank {share['rank']} {share['worker']}" if several else share["worker"]
        parts.append(
            f"{name}{' (streamed)' if share['streamed'] else ''} {share['points'] / total:.1%}"
        )
    return ", ".join(parts)
