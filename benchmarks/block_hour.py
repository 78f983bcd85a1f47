"""An hour of a steel block of 10 mm, in 3D, by implicit steps as long as their error allows.

    python benchmarks/block_hour.py 100 --faces constant convection radiation -o block.json

One face is heated from 20 to 100 degC at once, two convect, two are insulated; the last one has a
temperature, convects or radiates. Beside the seconds of the run stand those that its plan says.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

from tetris_sim.config import load_config
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.scheduler.plan.solving import plan_solving
from tetris_sim.simulation.loop import open_simulation
from tetris_sim.simulation.preparation import find_jumps

_FACES = {
    "constant": "{type: dirichlet, value: 20}",
    "convection": "{type: robin, h: 25, ambient: 20}",
    "radiation": "{type: radiation, emissivity: 0.8, ambient: 20}",
}
_TEXT = """
grid: {{shape: [{n}, {n}, {n}], size: [10 mm, 10 mm, 10 mm]}}
model: {{type: heat, material: steel}}
boundaries:
  x-: {{type: dirichlet, value: 100}}
  x+: {{type: robin, h: 25, ambient: 20}}
  y-: {{type: neumann}}
  y+: {face}
  z-: {{type: neumann}}
  z+: {{type: robin, h: 25, ambient: 20}}
initial: {{type: constant, value: 20}}
time: {{scheme: {scheme}}}
compute: {{threads: {threads}, devices: cpu}}
"""


def measure(n: int, face: str, threads: int, scheme: str) -> dict[str, Any]:
    """Predicted and measured seconds of a run, and what it says of its steps."""
    time_of = "steady" if scheme == "steady" else "implicit, t_end: 1 h"
    text = _TEXT.format(n=n, face=_FACES[face], scheme=time_of, threads=threads)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "block.yaml"
        path.write_text(text)
        config = load_config(path)

    problem, machine = config.build(), find_machine()
    stretches = None if scheme == "steady" else find_jumps(config, problem)
    tolerance = config.time.of_balances if stretches is None else config.time.of_steps
    made: Literal["steady", "implicit"] = "steady" if scheme == "steady" else "implicit"
    plan = plan_solving(problem, machine, config.compute, made, tolerance, stretches=stretches)
    with open_simulation(problem, plan) as simulation:
        begin, busy = time.perf_counter(), time.process_time()
        simulation.advance(problem.steps)
        wall, busy = time.perf_counter() - begin, time.process_time() - busy
        field = simulation.field()
        notes = simulation.plan.notes
    return {
        "points": n**3,
        "face": face,
        "scheme": scheme,
        "threads": threads,
        "predicted_s": plan.seconds_per_step * problem.steps,
        "wall_s": wall,
        "processor_s": busy,
        "mean": float(field.mean()),
        "notes": list(notes),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="+", type=int)
    parser.add_argument("--faces", nargs="+", choices=tuple(_FACES), default=tuple(_FACES))
    parser.add_argument("--schemes", nargs="+", default=("implicit",))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    rows = []
    for n in args.sizes:
        for face in args.faces:
            for scheme in args.schemes:
                measure(8, face, args.threads, scheme)  # compiles
                rows.append(row := measure(n, face, args.threads, scheme))
                print(
                    f"{n}^3, {face}, {scheme}: predicted {row['predicted_s']:.3g} s, took "
                    f"{row['wall_s']:.3g} s, {row['processor_s']:.3g} of processors; "
                    f"{'; '.join(row['notes'])}",
                    flush=True,
                )
                if args.output:
                    args.output.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
