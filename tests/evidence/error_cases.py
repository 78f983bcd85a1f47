"""Wrong configurations, and what is said of them."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tetris_sim as ts

from . import body_cases, stencil_cases
from .digests import Case, Config, command, outcome, settled

_GONE = object()
Change = tuple[str, Any]

HEAT: Config = {
    "grid": {"shape": [32, 24], "size": ["15 mm", "12 mm"]},
    "model": {"type": "heat", "material": "copper"},
    "initial": {"type": "gaussian", "amplitude": 100, "sigma": "2 mm"},
    "boundaries": {"x-": {"type": "dirichlet", "value": 20}, "*": {"type": "neumann"}},
    "time": {"dt": "auto", "t_end": "5 ms"},
}
STENCIL = stencil_cases.stencil_config("heat-2d", "mixed", {"devices": "cpu"})

OF_HEAT: list[Change] = [
    ("grid", _GONE),
    ("grid.shape", _GONE),
    ("grid.shape", [32, 0]),
    ("grid.shape", [32, -4]),
    ("grid.shape", [32, 2.5]),
    ("grid.shape", "many"),
    ("grid.shape", [4, 4, 4, 4]),
    ("grid.shape", []),
    ("grid.size", ["15 mm"]),
    ("grid.size", ["15 mm", "12 s"]),
    ("grid.size", ["15 mm", "-1 mm"]),
    ("grid.size", ["15 mm", "12 furlongs"]),
    ("grid.size", ["15 mm", "12 mm", "3 mm"]),
    ("grid.spacing", [1, 1]),
    ("grid.graded", {"z": {"edges": [0, 1]}}),
    ("grid.graded", {"x": {"edges": [0, 1, 0.5]}}),
    ("grid.graded", {"x": {"edges": [0, 1], "segments": [{"to": 1, "n": 2}]}}),
    ("grid.graded", {"x": {"segments": [{"to": "15 mm", "n": 3}]}}),
    ("grid.shap", [1, 2]),
    ("gird", {}),
    ("model", _GONE),
    ("model.type", _GONE),
    ("model.type", "haet"),
    ("model.type", 3),
    ("model.material", "coper"),
    ("model.material", _GONE),
    ("model.diffusivity", -1),
    ("model.diffusivity", "1 m/s"),
    ("model.conductivity", "0 W/(m K)"),
    ("model.stencil", "heat-3d"),
    ("model.stencil", "box-2d9q"),
    ("model.stencil", "sobel-2d"),
    ("model.materials", {"a": "copper"}),
    ("model.regions", [{"material": "copper"}]),
    ("initial", _GONE),
    ("initial.type", "gausian"),
    ("initial.sigma", 0),
    ("initial.sigma", "2 kg"),
    ("initial.amplitude", _GONE),
    ("initial.center", [1]),
    ("initial.center", [1, 2, 3]),
    ("initial", {"type": "expression", "expression": "x +"}),
    ("initial", {"type": "expression", "expression": "x.real"}),
    ("initial", {"type": "expression", "expression": "q + 1"}),
    ("initial", {"type": "expression", "expression": "sinn(x)"}),
    ("initial", {"type": "expression", "expression": "1/(x - x)"}),
    ("initial", {"type": "expression", "expression": "9**9**9**9"}),
    ("initial", {"type": "expression", "expression": "z + 1"}),
    ("initial", {"type": "file", "path": "/nowhere/there.npy"}),
    ("initial", {"type": "run", "from": "/nowhere/run"}),
    ("initial", {"type": "random", "low": 2, "high": 1}),
    ("initial", {"type": "random", "seed": -1}),
    ("initial", {"type": "constant", "value": "-300 degC"}),
    ("initial", {"type": "constant", "value": "1e999 K"}),
    ("boundaries", _GONE),
    ("boundaries", {}),
    ("boundaries", {"x": {"type": "neumann"}}),
    ("boundaries.z", {"type": "neumann"}),
    ("boundaries.w", {"type": "neumann"}),
    ("boundaries.x-", {"type": "periodic"}),
    ("boundaries.x-", "neumann"),
    ("boundaries.x-.value", "20 C"),
    ("boundaries.x-.value", _GONE),
    ("boundaries.x-.value", "20*q"),
    ("boundaries.x-.vlue", 3),
    ("boundaries.x-.type", "dirichelt"),
    ("boundaries.x-", {"type": "robin", "h": -5, "ambient": 20}),
    ("boundaries.x-", {"type": "robin", "h": 5}),
    ("boundaries.x-", {"type": "robin", "h": "5 W", "ambient": 20}),
    ("boundaries.x-", {"type": "radiation", "emissivity": 1.5, "ambient": 20}),
    ("boundaries.x-", [{"type": "dirichlet", "value": 1, "where": "y < 1e-3"}]),
    ("boundaries.x-", []),
    ("boundaries.x-.value", {"table": [[0, 1], [0, 2]]}),
    ("boundaries.x-.value", {"table": []}),
    ("boundaries.x-.value", {"table": "/nowhere/table.csv"}),
    ("boundaries.x-", {"type": "neumann", "flux": "3 W"}),
    ("time", _GONE),
    ("time.t_end", _GONE),
    ("time.t_end", 0),
    ("time.t_end", "-2 s"),
    ("time.t_end", "5 mm"),
    ("time.steps", 10),
    ("time.dt", "atuo"),
    ("time.dt", "1 s"),
    ("time.dt", 0),
    ("time.cfl", 0.3),
    ("time.cfl", True),
    ("time.safety", 1.5),
    ("time.scheme", "leapfrog"),
    ("time.scheme", "rk4"),
    ("time.scheme", "steady"),
    ("time.scheme", "explict"),
    ("time.tolerance", 2),
    ("time.tolerance", 1e-4),
    ("time.until", {"change": -1}),
    ("time.until", {"every": "5 steps"}),
    ("compute", {"devices": "tpu"}),
    ("compute", {"devices": ["cpu", "tpu"]}),
    ("compute", {"devices": []}),
    ("compute", {"devices": "gpu:7"}),
    ("compute", {"threads": 0}),
    ("compute", {"threads": "all"}),
    ("compute", {"method": "cpu.fast"}),
    ("compute", {"method": "cpu.stream", "parameters": {"nonsense": 1}}),
    ("compute", {"parameters": {"steps_per_block": 4}}),
    ("compute", {"precision": "float128"}),
    ("compute", {"precision": "double"}),
    ("compute", {"time_block": 0}),
    ("compute", {"time_block": "long"}),
    ("compute", {"shares": [1, 2, 3], "devices": "cpu,cpu:0"}),
    ("compute", {"shares": [0], "devices": "cpu"}),
    ("compute", {"tuning_budget": "-1 s"}),
    ("compute", {"gpu_memory": "2 GV"}),
    ("compute", {"gpu_messages": "udp"}),
    ("compute", {"on_device_failure": "retry"}),
    ("compute", {"simulated": {"memory": 0}}),
    ("output", {"fields": {}}),
    ("output", {"fields": {"every": "0 steps"}}),
    ("output", {"fields": {"every": "1 mm"}}),
    ("output", {"fields": {"every": "1 ms", "compression": "zip"}}),
    ("output", {"fields": {"at": ["1 s"]}}),
    ("output", {"probes": [{"at": ["1 mm"], "every": "1 ms"}]}),
    ("output", {"probes": [{"at": ["1 mm", "50 mm"], "every": "1 ms"}]}),
    ("output", {"probes": [{"at": [0, 0], "every": "1 ms", "name": "a/b"}]}),
    ("output", {"probes": [{"at": [0, 0], "every": 1, "name": "a"}] * 2}),
    ("output", {"parts": [{"name": "a", "every": "1 ms"}]}),
    ("output", {"parts": [{"name": "a", "every": "1 ms", "slice": {"z": 0}}]}),
    ("output", {"parts": [{"name": "a", "every": "1 ms", "box": {"x": [2e-3, 1e-3]}}]}),
    ("output", {"statistics": {"every": "never"}}),
    ("output", {"statistics": {"every": "5 min wall"}}),
    ("output", {"pictures": "yes please"}),
    ("checkpoint", {"every": "1 ms", "keep": 0}),
    ("checkpoint", {"every": "soon"}),
    ("checkpoint", {"per_rank": "each"}),
    ("run", {"max_walltime": 0}),
    ("run", {"max_walltime": "1 mm"}),
    ("schema", 2),
    ("title", ["a"]),
]
OF_STENCILS: list[Change] = [
    ("model.stencil", "heat-1d"),
    ("model.stencil", "laplacian-2d9p"),
    ("model.stencil", _GONE),
    ("model.offsets", [[0, 0], [1, 0]]),
    ("model", {"type": "stencil", "offsets": [[0, 0], [1, 0]], "weights": [1]}),
    ("model", {"type": "stencil", "offsets": [[0, 0], [0, 0]], "weights": [0.5, 0.5]}),
    ("model", {"type": "stencil", "offsets": [[0], [1]], "weights": [0.5, 0.5]}),
    ("model", {"type": "stencil", "offsets": [[0, 0], [1, 0]], "weights": [2, 1]}),
    ("model.weights", {"0, 0, 0": 1}),
    ("time", {"t_end": 2}),
    ("time", {"dt": 1, "steps": 3}),
    ("time", {"scheme": "implicit", "steps": 3}),
    ("boundaries.x-", {"type": "radiation", "emissivity": 1, "ambient": 2}),
    ("boundaries.x-", {"type": "robin", "h": 2, "ambient": 1}),
    ("model.stencil", "heat-2d-tensor"),
]
OF_BODIES: list[Change] = [
    ("model.regions", [{"material": "die", "box": {"x": [0, "1 mm"]}}]),
    ("model.regions", [{"material": "dye"}]),
    ("model.regions", [{"material": "die", "void": True}]),
    ("model.regions", [{"box": {"x": [0, 1]}}]),
    ("model.regions", [{"material": "die", "where": "r < 1"}]),
    ("model.regions", [{"labels": "/nowhere/labels.npy"}]),
    ("model.regions", [{"void": True}]),
    ("model.regions", []),
    ("model.contacts", [{"between": ["die"], "resistance": 1}]),
    ("model.contacts", [{"between": ["die", "air"], "resistance": 1}]),
    ("model.contacts", [{"between": ["die", "paste"], "resistance": -1}]),
    ("model.sources", [{"region": "chap", "power": 1}]),
    ("model.sources", [{"region": "chip"}]),
    ("model.sources", [{"region": "chip", "power": 1, "density": 1}]),
    ("model.sources", [{"material": "die", "power": "x"}]),
    ("model.sources", [{"type": "beam", "power": 1, "d4sigma": 1, "face": "z-"}]),
    ("model.materials.die", {"conductivity": 1}),
    ("model.materials.die", {"conductivity": {"table": [[20, 1], [10, 2]]}}),
    ("model.materials.paste.latent_heat", 5e4),
    ("model.materials.paste.solidus", 40),
    ("model.stencil", "box-2d9p"),
    ("time.dt", "1 s"),
    ("time.scheme", "spectral"),
]
OF_EQUATIONS: list[Change] = [
    ("model.fields", {}),
    ("model.fields.u.equation", "laplace(w)"),
    ("model.fields.u.equation", "laplace(u"),
    ("model.fields.u.equation", "lapalce(u)"),
    ("model.fields.u.equation", "dz(u)"),
    ("model.fields.u.equation", "advect(1, u)"),
    ("model.fields.u.equation", _GONE),
    ("model.fields.u.second_order", "laplace(u)"),
    ("model.fields.u.initial", _GONE),
    ("model.fields.u.boundaries", {"x": {"type": "periodic"}}),
    ("model.fields.u.boundaries", {"x-": {"type": "radiation", "emissivity": 1, "ambient": 2}}),
    ("model.fields.laplace", {"equation": "1", "initial": {"type": "constant", "value": 0}}),
    ("model.constants.F", "k*"),
    ("model.constants.F", "F + 1"),
    ("model.constants.u", 3),
    ("model.accuracy", 3),
    ("model.advection", "sideways"),
    ("initial", {"type": "constant", "value": 0}),
    ("time.dt", 50),
    ("time.scheme", "leapfrog"),
    ("time.scheme", "spectral"),
    ("time.scheme", "steady"),
    ("time.tolerance", 1e-5),
    ("compute.precision", "float16"),
]
TEXTS = {
    "empty": "",
    "list": "- a\n- b\n",
    "tab": "grid:\n\tshape: [3]\n",
    "twice": "grid: {shape: [3]}\ngrid: {shape: [4]}\n",
    "open": "grid: {shape: [3\n",
    "anchor": "grid: &a {shape: [3]}\nmodel: *a\n",
    "octal": "grid: {shape: [017]}\nmodel: {type: heat, material: copper}\n",
    "variable": "grid: {shape: [3]}\noutput: {directory: ${TETRIS_SIM_NOT_SET_HERE}/a}\n",
}


def cases() -> Iterator[Case]:
    """Key and call of each."""
    groups: dict[str, tuple[Config, list[Change]]] = {
        "heat": (HEAT, OF_HEAT),
        "stencil": (STENCIL, OF_STENCILS),
        "body": (body_cases.PLATE, OF_BODIES),
        "equations": (body_cases.GRAY_SCOTT, OF_EQUATIONS),
    }
    for group, (base, changes) in groups.items():
        for number, (path, value) in enumerate(changes):
            key = f"errors/{group}/{number:03d} {path}"
            yield key, partial(_refusal, base, path, value)
    for name, text in TEXTS.items():
        yield f"errors/text/{name}", partial(_of_text, text)


def changed(base: Config, path: str, value: Any) -> Config:
    """A copy in which one key has another value, or is gone."""
    found = copy.deepcopy(base)
    *way, last = path.split(".")
    parent: Any = found
    for part in way:
        parent = parent[part]
    if value is _GONE:
        del parent[last]
    else:
        parent[last] = value
    return found


def _refusal(base: Config, path: str, value: Any) -> str:
    def attempt() -> str:
        problem = ts.make_config(changed(base, path, value)).build()
        machine = ts.find_machine()
        return f"accepted, {problem.steps} steps, {bool(machine)}"

    return outcome(attempt)


def _of_text(text: str) -> str:
    with tempfile.TemporaryDirectory(prefix="tetris_sim_evidence_") as folder:
        path = Path(folder) / "wrong.yaml"
        path.write_text(text)
        return settled(command("validate", str(path)).text())
