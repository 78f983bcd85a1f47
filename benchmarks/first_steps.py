"""How soon equations are under way: each template's first step, from the start of the process.

    python benchmarks/first_steps.py
    python benchmarks/first_steps.py gray_scott wave

Each template is begun twice, in a process of its own: with an empty folder of compiled code, and
with what the first process left there. Imports, planning with its measurements, compilation and
loading are included; outputs are not. Beside the seconds of the clock stand those of the processor,
which say what an idle machine would need. With TETRIS_SIM_ROWS=FILE the rows are kept as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TEMPLATES = (
    *("gray_scott", "fitzhugh_nagumo", "allen_cahn", "cahn_hilliard", "kuramoto_sivashinsky"),
    *("wave", "plume", "fisher_kpp", "schroedinger", "shallow_water", "brusselator_3d"),
)


def begin(template: str, started: float) -> None:
    """Make one step in this process, and say what it took."""
    from tetris_sim.config import load_config
    from tetris_sim.scheduler.comm.communicator import Alone
    from tetris_sim.simulation.loop import open_simulation
    from tetris_sim.simulation.preparation import prepare

    config = load_config(ROOT / "tetris_sim" / "commands" / "templates" / f"{template}.yaml")
    prepared = prepare(config, Alone())
    planned = time.time() - started
    with open_simulation(prepared.problem, prepared.plan) as simulation:
        simulation.advance(1)
        simulation.field()
        row = {
            "template": template,
            "seconds": time.time() - started,
            "planned": planned,
            "processor": time.process_time(),
            "method": prepared.plan.shares[0].method.name,
        }
    print(json.dumps(row))


def measure(template: str, folder: str) -> dict[str, Any]:
    """The same in a process of its own."""
    environment = {**os.environ, "TETRIS_SIM_CACHE_DIR": folder, "NUMBA_CACHE_DIR": folder}
    command = [sys.executable, __file__, "--begin", template, str(time.time())]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def main(*templates: str) -> None:
    """Begin each template with a fresh and with a filled folder."""
    rows = []
    for template in templates or TEMPLATES:
        with tempfile.TemporaryDirectory() as folder:
            for cache in ("fresh", "filled"):
                row = {**measure(template, folder), "cache": cache}
                rows.append(row)
                print(
                    f"{template:22s} {cache:7s} {row['seconds']:6.1f} s, planned after "
                    f"{row['planned']:5.1f} s, processor {row['processor']:5.1f} s: {row['method']}",
                    flush=True,
                )
    if (path := os.environ.get("TETRIS_SIM_ROWS")) is not None:
        Path(path).write_text(json.dumps({"first_rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--begin"]:
        begin(sys.argv[2], float(sys.argv[3]))
    else:
        main(*sys.argv[1:])
