"""A chip of three layers in tetris_sim, FiPy and py-pde: same answer, time to solution, input.

    flock FILE python benchmarks/peers_bodies.py PYTHON-OF-THE-PEERS RESULT.json

The inputs are in `peers/`; the peers are no dependencies and live in an environment of their own.
Every run is a process of its own, from its start to the field on disk; programs take turns. Answers
are compared with SciPy's implicit Runge-Kutta method for the same finite volumes. tetris_sim runs
once with an empty cache of kernels first, which is told apart.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).with_name("peers")
TURNS, FIPY_STEPS = 3, ("2e-3", "5e-4")  # [s]
Numbers = npt.NDArray[np.float64]


def exact() -> Numbers:
    """The field of chip.yaml after 0.2 s, (50, 100)."""
    from scipy.integrate import solve_ivp
    from scipy.sparse import coo_matrix

    shape, h, t_end = (50, 100), 0.2e-3, 0.2
    n = shape[0] * shape[1]
    y, x = ((np.arange(m) + 0.5) * h for m in shape)
    layer = np.broadcast_to(np.searchsorted([2e-3, 3e-3], y)[:, None], shape)
    k = np.array([148.0, 4.0, 401.0])[layer]
    capacity = np.array([2330 * 712.0, 2500 * 900.0, 8933 * 385.0])[layer].ravel()
    source = np.where((y[:, None] < 1e-3) & (x > 5e-3) & (x < 10e-3), 2e8, 0.0).ravel()
    number = np.arange(n).reshape(shape)
    film = np.zeros(n)
    film[number[-1]] = 1 / (h / 2 / k[-1] + 1 / 8000) / h

    rows, columns, values = [np.arange(n)], [np.arange(n)], [-film]
    for low, high in ((np.s_[:-1], np.s_[1:]), (np.s_[:, :-1], np.s_[:, 1:])):
        flow = (2 / (1 / k[low] + 1 / k[high]) / h**2).ravel()
        a, b = number[low].ravel(), number[high].ravel()
        rows += [a, b, a, b]
        columns += [b, a, a, b]
        values += [flow, flow, -flow, -flow]
    entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
    matrix = coo_matrix(entries).tocsr().multiply(1 / capacity[:, None]).tocsc()
    gain = (source + 40.0 * film) / capacity
    options: dict[str, Any] = {"method": "Radau", "jac": matrix, "rtol": 1e-8, "atol": 1e-8}
    found = solve_ivp(lambda t, u: matrix @ u + gain, (0, t_end), np.full(n, 40.0), **options)
    return np.asarray(found.y[:, -1]).reshape(shape)


def run(command: list[str], folder: Path, cache: Path) -> tuple[float, float]:
    """(seconds on the clock, seconds of CPU) of a process."""
    environment = {**os.environ, "TETRIS_SIM_CACHE_DIR": str(cache)}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def answer(folder: Path) -> Numbers:
    """The last field that a program has written."""
    if (folder / "answer.npy").exists():
        return np.asarray(np.load(folder / "answer.npy"))
    import h5py

    with h5py.File(folder / "results" / "fields.h5") as file:
        return np.asarray(file["temperature"][-1])


def lines_of(path: Path) -> int:
    """Lines that say something."""
    kept = [line.strip() for line in path.read_text().splitlines()]
    return sum(bool(line) and not line.startswith(("#", '"""')) for line in kept)


def main(peers: str, result: Path) -> None:
    """Measure, and write the result."""
    ours = [sys.executable, "-m", "tetris_sim", "run", str(HERE / "chip.yaml")]
    ours += ["--overwrite", "--set", "output.directory=results"]
    commands = {"tetris_sim": (HERE / "chip.yaml", ours)}
    for dt in FIPY_STEPS:
        path = HERE / "chip_fipy.py"
        commands[f"FiPy, dt {float(dt) * 1e3:g} ms"] = (path, [peers, str(path), dt])
    path = HERE / "chip_pde.py"
    commands["py-pde, volumes by hand"] = (path, [peers, str(path)])

    rows = []
    wanted = exact()
    with tempfile.TemporaryDirectory() as name:
        folders = {program: Path(name) / str(k) for k, program in enumerate(commands)}
        for folder in folders.values():
            folder.mkdir()
        cache = Path(name) / "cache"
        first = run(ours, folders["tetris_sim"], cache)
        timed: dict[str, list[tuple[float, float]]] = {program: [] for program in commands}
        for _ in range(TURNS):
            for program, (_, command) in commands.items():
                timed[program].append(run(command, folders[program], cache))
        for program, (path, _) in commands.items():
            off = np.abs(answer(folders[program]) - wanted).max()
            rows.append(
                {
                    "program": program,
                    "lines": lines_of(path),
                    "difference": float(f"{off:.3g}"),
                    "seconds": [round(it[0], 2) for it in timed[program]],
                    "cpu_seconds": [round(it[1], 2) for it in timed[program]],
                }
            )
    rows[0] |= {"first": round(first[0], 2), "first_cpu": round(first[1], 2)}
    pip = [peers, "-c", "import fipy, pde; print(fipy.__version__, pde.__version__)"]
    fipy, pde = subprocess.run(pip, capture_output=True, text=True, check=True).stdout.split()[-2:]
    found = {
        "date": datetime.now().astimezone().date().isoformat(),
        "cpu": next(
            it for it in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in it
        )
        .partition(":")[2]
        .strip(),
        "cores": os.cpu_count(),
        "versions": {"fipy": fipy, "py-pde": pde},
        "rise": float(f"{wanted.max() - 40:.4g}"),
        "rows": rows,
    }
    result.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
