"""Make `trust/accuracy.svg` of the page `trust/accuracy.md`, "How right is it", and print its
table: errors of areas, volumes, schedules and fronts by the fineness of cells and steps.

    python docs/make_accuracy_page.py
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from scipy.optimize import brentq
from small_files import save_picture

import tetris_sim as ts
from tetris_sim.config import make_config

Numbers = npt.NDArray[np.float64]
Errors = dict[str, list[tuple[int, float]]]

SIZE, MIDDLE = 24e-3, 12e-3  # of the box, and where bodies lie [m]
METAL = {"conductivity": 4e4, "density": 8900, "specific_heat": 385}  # of one temperature
H, POWER = 100, 100


def immersed(n: int, ndim: int, region: dict[str, Any]) -> dict[str, Any]:
    """A heated body in a fluid: how warm it is says what area it has."""
    return {
        "grid": {"shape": [n] * ndim, "size": [SIZE] * ndim},
        "model": {
            "type": "heat",
            "materials": {"metal": METAL},
            "regions": [{"fluid": {"ambient": 0, "h": H}}, {"material": "metal", **region}],
            "sources": [{"material": "metal", "power": POWER}],
        },
        "boundaries": {"*": {"type": "neumann"}},
        "initial": {"type": "constant", "value": 0},
        "time": {"scheme": "steady"},
        "compute": {"threads": 2},
    }


def area(config: dict[str, Any]) -> float:
    """The area by which a body gives off its heat [m^2]."""
    field = ts.run(config, progress=False).field()
    return float(POWER / H / field[field > 0].mean())


def volume(config: dict[str, Any]) -> float:
    """The volume that a body stores heat in [m^3]."""
    made = make_config({**config, "time": {"dt": "auto", "steps": 1}})
    problem = made.build()
    medium = problem.body.medium
    capacity = medium.capacity[medium.ids(tuple((0, n) for n in problem.grid.shape))]
    stored = capacity[np.isfinite(capacity)].sum() * problem.grid.cell_volume
    return float(stored / (METAL["density"] * METAL["specific_heat"]))


def write_stl(path: Path, triangles: Numbers) -> tuple[float, float]:
    """Write triangles (n, 3, 3) [mm]; their area and the volume within them [m^2, m^3]."""
    record = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("more", "<u2")])
    rows = np.zeros(len(triangles), record)
    rows["corners"] = triangles
    path.write_bytes(b" " * 80 + np.uint32(len(rows)).tobytes() + rows.tobytes())
    a, b, c = np.moveaxis(triangles, 1, 0)
    areas = np.linalg.norm(np.cross(b - a, c - a), axis=1) / 2
    return float(areas.sum()) * 1e-6, abs(float((a * np.cross(b, c)).sum())) / 6 * 1e-9


def ellipsoid() -> Numbers:
    """Of half axes 10, 7 and 4 mm."""
    theta, phi = np.linspace(0, math.pi, 81), np.linspace(0, 2 * math.pi, 161)
    t, p = np.meshgrid(theta, phi, indexing="ij")
    at = np.stack([10 * np.sin(t) * np.cos(p), 7 * np.sin(t) * np.sin(p), 4 * np.cos(t)], -1)
    corners = at[:-1, :-1], at[1:, :-1], at[1:, 1:], at[:-1, 1:]
    first = np.stack([corners[0], corners[1], corners[2]], -2).reshape(-1, 3, 3)
    second = np.stack([corners[0], corners[2], corners[3]], -2).reshape(-1, 3, 3)
    found = np.concatenate([first, second])
    a, b, c = np.moveaxis(found, 1, 0)
    # At the poles, one of both triangles is a line.
    return np.asarray(found[np.linalg.norm(np.cross(b - a, c - a), axis=1) > 1e-9] + 12.0)


def gear() -> Numbers:
    """Eight teeth, 6 mm thick."""
    angles = np.linspace(0, 2 * math.pi, 241)
    radii = 8 + np.cos(8 * angles)
    x, y = radii * np.cos(angles), radii * np.sin(angles)
    x[-1], y[-1] = x[0], y[0]
    low, high = (np.stack([x, y, np.full(x.shape, z)], -1) for z in (-3.0, 3.0))
    parts = [
        np.stack([low[:-1], low[1:], high[1:]], 1),
        np.stack([low[:-1], high[1:], high[:-1]], 1),
        np.stack([np.broadcast_to([0.0, 0, 3.0], (240, 3)), high[:-1], high[1:]], 1),
        np.stack([np.broadcast_to([0.0, 0, -3.0], (240, 3)), low[1:], low[:-1]], 1),
    ]
    return np.concatenate(parts) + 12.0


def plate(angle: float) -> str:
    """6 mm x 16 mm, turned about the middle [degrees]."""
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    x, y = f"(x - {MIDDLE})", f"(y - {MIDDLE})"
    return f"abs({x}*{c} + {y}*{s}) < 3e-3 and abs({y}*{c} - {x}*{s}) < 8e-3"


def surfaces(folder: Path) -> tuple[Errors, Errors]:
    """Errors of areas and of volumes."""
    middle = f"(x - {MIDDLE}), (y - {MIDDLE})"
    disc, ball = f"hypot({middle}) < 1e-2", f"hypot({middle}, (z - {MIDDLE})) < 1e-2"
    cases = [
        ("disc", 2, {"where": disc}, (2e-2 * math.pi, 1e-4 * math.pi), (24, 48, 96, 192)),
        ("plate at 17 degrees", 2, {"where": plate(17)}, (44e-3, 96e-6), (24, 48, 96, 192)),
        ("ball", 3, {"where": ball}, (4e-4 * math.pi, 4e-6 / 3 * math.pi), (12, 24, 48)),
    ]
    for name, triangles in (("ellipsoid (STL)", ellipsoid()), ("gear (STL)", gear())):
        path = folder / f"{name[:4]}.stl"
        true = write_stl(path, triangles)
        cases.append((name, 3, {"labels": str(path), "scale": "1 mm"}, true, (12, 24, 48)))

    areas, volumes = Errors(), Errors()
    for name, ndim, region, true, cells in cases:
        for n in cells:
            config = immersed(n, ndim, region)
            for found, of, exact in ((areas, area, true[0]), (volumes, volume, true[1])):
                error = max(abs(of(config) / exact - 1), 1e-7)
                found.setdefault(name, []).append((n, error))
    return areas, volumes


def schedules() -> Errors:
    """Errors of the heat that implicit steps take up from what changes with time."""
    pulse = {"table": [[0, 0], [520, 0], [521, 1e4], [530, 1e4], [531, 0]]}
    given = {
        "pulse of 10 s (table)": (pulse, 1e5),
        "wave (formula)": ("1e3*sin(t/50)**2", 1e3 * (500 - 12.5 * math.sin(40.0))),
    }
    found = Errors()
    for name, (course, exact) in given.items():
        for steps in (10, 20, 40, 80):
            config = {
                "grid": {"shape": [10], "size": [0.1]},
                "model": {
                    "type": "heat",
                    "materials": {"m": {"conductivity": 50, "density": 7800, "specific_heat": 500}},
                    "regions": [{"material": "m"}],
                    "sources": [{"power": course}],
                },
                "boundaries": {"*": {"type": "neumann"}},
                "initial": {"type": "constant", "value": 0},
                "time": {"scheme": "implicit", "dt": 1000 / steps, "t_end": 1000},
                "compute": {"threads": 1},
            }
            heat = float(ts.run(config, progress=False).field().mean()) * 7800 * 500 * 0.1
            found.setdefault(name, []).append((steps, max(abs(heat / exact - 1), 1e-16)))
    return found


def fronts() -> Errors:
    """Mean errors of the temperature round Neumann's front on a graded axis, of 1.5 degrees."""
    latent, ratio = 5.0, 2.0  # solid k 1, c 1, liquid k 0.5, c 2
    lam = brentq(
        lambda it: (
            math.exp(-it * it) / math.erf(it)
            - 0.25 * ratio * math.exp(-((it * ratio) ** 2)) / math.erfc(it * ratio)
            - it * math.sqrt(math.pi) * latent
        ),
        *(1e-3, 3.0),
    )
    found = Errors()
    for n in (12, 24, 48, 96):
        edges = 6.0 * np.expm1(2 * np.linspace(0, 1, n + 1)) / np.expm1(2.0)
        edges[-1] = 6.0
        melt = {
            "conductivity": {"table": [[-1e-6, 1.0], [1e-6, 0.5]]},
            "density": 1.0,
            "specific_heat": {"table": [[-1e-6, 1.0], [1e-6, 2.0]]},
            "latent_heat": latent,
            "solidus": 0.0,
        }
        config = {
            "grid": {"shape": [n], "size": [6.0], "graded": {"x": {"edges": edges.tolist()}}},
            "model": {
                "type": "heat",
                "materials": {"melt": melt},
                "regions": [{"material": "melt"}],
            },
            "initial": {"type": "constant", "value": 0.5},
            "boundaries": {
                "x-": {"type": "dirichlet", "value": -1},
                "x+": {"type": "dirichlet", "value": 0.5},
            },
            "time": {"dt": "auto", "t_end": 1.0, "scheme": "explicit"},
            "compute": {"method": "cpu.plain", "threads": 1},
        }
        state = np.asarray(ts.run(config, progress=False).field("temperature"))
        widths, x = np.diff(edges), (edges[1:] + edges[:-1]) / 2
        erf = np.vectorize(math.erf)
        solid = -1 + erf(x / 2) / math.erf(lam)
        liquid = 0.5 - 0.5 * (1 - erf(x / 2 * ratio)) / math.erfc(lam * ratio)
        off = abs(state - np.where(x < 2 * lam, solid, liquid)) * widths
        error = float(off[x < 2].sum() / 2 / 1.5)
        found.setdefault("freezing half space, graded", []).append((n, error))
    return found


def draw(axes: Any, title: str, label: str, found: Errors) -> None:
    """Errors against fineness, and slopes of first and second order."""
    for name, points in found.items():
        n, error = zip(*points, strict=True)
        axes.loglog(n, error, "o-", label=name)
        cells = ", ".join(f"{k}: {it:.1e}" for k, it in points)
        sys.stdout.write(f"| {title} | {name} | {cells} |\n")
    counts = sorted({k for points in found.values() for k, _ in points})
    largest = max(error for points in found.values() for _, error in points)
    # Errors of rounding have no order.
    if largest < 1e-12:
        axes.set_ylim(1e-17, 1)
    else:
        for order in (1, 2):
            falling = [largest * (counts[0] / k) ** order for k in counts]
            axes.loglog(counts, falling, ":", color="grey")

    axes.set_xticks(counts, [str(k) for k in counts])
    axes.set_xticks([], minor=True)
    axes.set(title=title, xlabel=label)
    axes.legend(fontsize=7)


def main() -> None:
    """Compute, print and draw."""
    figure = Figure(figsize=(9, 7), layout="constrained")
    (first, second), (third, fourth) = figure.subplots(2, 2)
    with tempfile.TemporaryDirectory() as folder:
        areas, volumes = surfaces(Path(folder))
    draw(first, "Area, relative error", "cells along the box", areas)
    draw(second, "Volume, relative error", "cells along the box", volumes)
    draw(third, "Heat by a schedule, relative error", "implicit steps", schedules())
    draw(fourth, "Front, relative error", "cells", fronts())
    save_picture(figure, Path(__file__).parent / "trust" / "accuracy.svg")


if __name__ == "__main__":
    main()
