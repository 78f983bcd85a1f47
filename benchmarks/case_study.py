"""The copper plate of the Tetris paper (section 6.5) at its full size: Table 3, Figure 16 and the
FP32 row of Table 4.

`python benchmarks/case_study.py FOLDER` runs examples/copper_plate_full.yaml on a GPU in
float64 and float32 to the end and on the CPU for some steps, compares the final field with the
exact solution of the discrete equations, and writes `case-study.json` and `case-study.png`. About
seven minutes on one H200 with 16 cores.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from scipy import fft

mpl.use("Agg")
import matplotlib.pyplot as plt

Array = npt.NDArray[np.float64]
PLATE = Path(__file__).parents[1] / "examples" / "copper_plate_full.yaml"
STEPS, CFL = 3_800_000, 0.23
SHOWN = 24  # every so many points are drawn
BRIEFLY = (
    "output.fields.every=100000 steps",
    "output.statistics.every=100000 steps",
    "output.pictures=false",
)
RUNS = {
    "one sweep per step on the CPU": (
        "compute.devices=cpu",
        "compute.method=cpu.plain",
        "time.steps=900",
        *BRIEFLY,
    ),
    "CPU": ("compute.devices=cpu", "time.steps=5000", *BRIEFLY),
    "GPU, float32": (
        "compute.devices=gpu",
        "compute.precision=float32",
        "output.fields.compression=none",
    ),
    "GPU": ("compute.devices=cpu+gpu", "output.fields.compression=none"),
}


def run(folder: Path, *changes: str) -> dict[str, Any]:
    """Run the plate into a folder; its report."""
    words = [
        sys.executable,
        "-m",
        "tetris_sim",
        "run",
        str(PLATE),
        "--overwrite",
        "-q",
        "--no-progress",
    ]
    for change in (*changes, f"output.directory={folder}"):
        words += ["--set", change]
    subprocess.run(words, check=True)
    found: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return found


def row(report: dict[str, Any]) -> dict[str, Any]:
    """What Table 3 says of a run; the time of all steps is computed for those that made fewer."""
    rate = report["points_per_second"]
    complete = report["step"] == STEPS
    return {
        "methods": sorted(set(report["methods"].values())),
        "steps": report["step"],
        "points_per_second": rate,
        "seconds": report["wall_s"] if complete else report["points"] * STEPS / rate,
        "computed": not complete,
    }


def field(folder: Path, which: int) -> Array:
    """The first (0) or last (-1) field that was written, (y, x)."""
    path = sorted((folder / "fields").glob("*.h5"))[which]
    with h5py.File(path) as file:
        return np.asarray(file["temperature"][0], dtype=np.float64)


def exact(start: Array, steps: int) -> Array:
    """The discrete equations solved by cosines: insulated faces mirror the points next to them
    (DCT-II).
    """
    squares = [np.sin(np.pi * np.arange(n) / (2 * n)) ** 2 for n in start.shape]
    growth = 1 - 4 * CFL * (squares[0][:, None] + squares[1][None, :])
    with np.errstate(divide="ignore"):
        modes = (
            fft.dctn(start, workers=-1)
            * np.sign(growth) ** steps
            * np.exp(steps * np.log(np.abs(growth)))
        )
    return np.asarray(fft.idctn(modes, workers=-1))


def deviations(found: Array, wanted: Array) -> dict[str, Any]:
    """Shares of the points that are off by more than some degC, and by more than some percent (the
    paper's Table 4).
    """
    off = np.abs(found - wanted)
    relative = 100 * off / np.abs(wanted)
    return {
        "largest": float(off.max()),
        "over": {str(limit): float((off > limit).mean()) for limit in (0.1, 0.5, 1.0)},
        "over_percent": {str(limit): float((relative > limit).mean()) for limit in (1, 3, 5)},
    }


def draw(start: Array, final: Array, single: Array, path: Path) -> None:
    """Before, after, after in float32, and how far that is off; fields in degC on the same part of
    the points.
    """
    figure, axes = plt.subplots(2, 2, figsize=(8.6, 7.4), layout="constrained")
    largest = float(np.abs(single - final).max())
    panels = (
        ("(a) before", start, "inferno", (0.0, 100.0)),
        ("(b) after 3.8 million steps, float64", final, "inferno", (0.0, 100.0)),
        ("(c) the same in float32", single, "inferno", (0.0, 100.0)),
        ("(d) float32 - float64", single - final, "coolwarm", (-largest, largest)),
    )
    for axis, (title, values, colours, (low, high)) in zip(axes.flat, panels, strict=True):
        image = axis.imshow(
            values, origin="lower", cmap=colours, vmin=low, vmax=high, extent=(0, 15, 0, 15)
        )
        axis.set_title(title)
        axis.set_xlabel("x [mm]")
        axis.set_ylabel("y [mm]")
        figure.colorbar(image, ax=axis, label="degC")
    figure.savefig(path, dpi=110)


def main(folder: Path) -> None:
    """All of it."""
    folder.mkdir(parents=True, exist_ok=True)
    folders = {name: folder / name.replace(" ", "-").replace(",", "") for name in RUNS}
    rows = {name: row(run(folders[name], *changes)) for name, changes in RUNS.items()}
    start, final = field(folder / "GPU", 0), field(folder / "GPU", -1)
    single = field(folder / "GPU-float32", -1)
    middle = tuple(n // 2 for n in final.shape)
    off = np.abs(final - exact(start, STEPS))
    facts = {
        "rows": rows,
        "centre": float(final[middle]),
        "off_exact": {"largest": float(off.max()), "mean": float(off.mean())},
        "float32": deviations(single, final),
    }
    (folder / "case-study.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    shown = (slice(None, None, SHOWN),) * 2
    draw(start[shown], final[shown], single[shown], folder / "case-study.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
