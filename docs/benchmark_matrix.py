"""Tables of the page about kinds of problems: what runs several steps a pass, and how fast."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tetris_sim.bench.tables import TextTable

Read = Callable[[str], Mapping[str | None, Mapping[str, Any]]]
"""The runs of a file of benchmarks/ by their names."""

SHORT = {"float64": "", "float32": " float32"}


def matrix(read: Read) -> TextTable:
    """Methods by kind and axes; a method that takes float64 only says so."""
    by_kind: dict[str, dict[tuple[int, str], Mapping[str, Any]]] = {}
    for row in read("matrix.json")[None]["cells"]:
        by_kind.setdefault(row["kind"], {})[row["axes"], row["precision"]] = row
    cells = [
        [kind, device, *(_methods(rows, ndim, device) for ndim in (1, 2, 3))]
        for kind, rows in by_kind.items()
        for device in ("cpu", "gpu")
    ]
    header = ["kind", "device", "1D", "2D", "3D"]
    return TextTable("Methods that advance several steps a pass", header, cells, 5)


def _methods(rows: Mapping[tuple[int, str], Mapping[str, Any]], ndim: int, device: str) -> str:
    double, single = (rows[ndim, it].get(device, []) for it in ("float64", "float32"))
    if not double and not single:
        return "one step a pass"
    names = [f"{it}{'' if it in single else ' (float64)'}" for it in double]
    names += [f"{it} (float32)" for it in single if it not in double]
    return ", ".join(it.removeprefix(f"{device}.") for it in names)


def matrix_rates(read: Read) -> TextTable:
    """Rates of runs by kind and axes, and their share of the constant stencil's rate."""
    record, cells = read("matrix.json")[None], []
    for device, rates in record.get("rates", {}).items():
        for cell, found in rates.items():
            kind, ndim, precision = cell.split("|")
            whole = rates.get(f"constant|{ndim}|{precision}")
            share = f"{found['GStencil/s'] / whole['GStencil/s']:.2f}" if whole else ""
            low, high = found["spread"]
            numbers = (_rate(found["GStencil/s"]), f"{_rate(low)} to {_rate(high)}", share)
            starts = (f"{found['fresh s']:.1f}", f"{found['warm s']:.1f}")
            method = ", ".join(it.removeprefix(f"{device}.") for it in found["methods"])
            where = f"{found['hardware']}, {' x '.join(map(str, found['shape']))}"
            cells.append(
                [kind + SHORT[precision], where, method, *numbers, *starts, found["commit"]]
            )
    header = [
        *("kind", "on", "method", "GStencil/s", "spread", "of constant"),
        *("start, fresh [s]", "warm [s]", "commit"),
    ]
    return TextTable("Whole runs through `tetris_sim.run`", header, cells, 3)


def _rate(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


def matrix_reasons(read: Read) -> TextTable:
    """Why a cell makes one step a pass."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in read("matrix.json")[None]["cells"]:
        for device in ("cpu", "gpu"):
            if not row.get(device):
                why = row.get("refused") or row[f"why not {device}"]
                axes = found.setdefault((row["kind"], device, why), [])
                axes += [f"{row['axes']}D"] if f"{row['axes']}D" not in axes else []
    cells = [[kind, device, ", ".join(axes), why] for (kind, device, why), axes in found.items()]
    return TextTable("One step a pass", ["kind", "device", "axes", "because"], cells, 4)
