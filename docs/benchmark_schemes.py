"""Tables of the page about schemes: how long a jump takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from tetris_sim.bench.tables import TextTable

Read = Callable[[str], Mapping[str | None, Mapping[str, Any]]]
"""The runs of a file of benchmarks/ by their names."""

FACES = {"insulated": "insulated (transforms)", "cooled": "convection and a value (matrices)"}
WANTED = {
    ("cpu", "insulated"): "20",
    ("cpu", "cooled"): "90",
    ("gpu", "insulated"): "0.2",
    ("gpu", "cooled"): "0.5",
}
"""Seconds of a jump over 3.8 million steps."""


def jumps(read: Read) -> TextTable:
    """Seconds by device, faces and steps."""
    result, cells = read("schemes.json")[None], []
    for row in result["rows"]:
        others = f"{median(row['others_s']):.2g}" if row["others_s"] else ""
        wanted = WANTED[row["device"], row["faces"]] if row["steps"] > 1000 else ""
        place = result[row["device"]]
        seconds = (f"{row['first_s']:.2g}", others, wanted, f"{row['error']:.1g}")
        cells.append([place, FACES[row["faces"]], f"{row['steps']}", *seconds])
    header = ["device", "faces", "steps", "first jump", "others", "wanted", "error"]
    return TextTable("Seconds of a jump, 9600 x 9600, float64", header, cells, 2)


def steady_beside_pyamg(read: Read) -> TextTable:
    """Seconds and iterations by size, for the same matrix and residual."""
    cells = []
    for row in read("steady-peers.json")[None]["rows"]:
        here, (peer,) = row["here"], row["pyamg"]
        mine, theirs = here[0]["seconds"], peer["setup_s"] + peer["solve_s"]
        numbers = (str(here[0]["iterations"]), f"{theirs:.3g}", str(peer["iterations"]))
        cells.append([f"{row['n']}^3", f"{mine:.2g}", *numbers, f"{theirs / mine:.2g}"])
    header = ["points", "s", "iterations", "pyamg, s", "its iterations", "times"]
    return TextTable("Hierarchy and solution, two threads, float64", header, cells, 1)
