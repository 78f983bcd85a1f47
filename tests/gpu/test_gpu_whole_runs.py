"""On a GPU: whole runs of all templates, examples, schemes and functions end as on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tetris_sim.commands.init import TEMPLATES, template_text
from tetris_sim.config.yaml import read_yaml
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.formula import ARITY, FUNCTIONS

pytestmark = pytest.mark.gpu

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STEPS = 12
QUICK = {
    "output": {"pictures": False},
    "checkpoint": {"at_end": True},
}
OTHER = {"density": 900.0, "specific_heat": 700.0}
BODY: dict[str, Any] = {
    "grid": {"shape": [40, 30, 20], "spacing": [1e-3, 1e-3, 1e-3]},
    "model": {
        "type": "heat",
        "materials": {
            "a": {"conductivity": 10.0, "density": 1000.0, "specific_heat": 800.0},
            "b": {**OTHER, "conductivity": {"table": [[0, 1.0], [100, 2.0]]}},
        },
        "regions": [
            {"material": "a"},
            {"material": "b", "where": "hypot(x - 15e-3, y - 14e-3) < 7e-3"},
        ],
        "sources": [{"density": "1e6*exp(-((x - 10e-3)/3e-3)**2)", "material": "b"}],
    },
    "initial": {"type": "constant", "value": 20.0},
    "boundaries": {"*": {"type": "robin", "h": 20, "ambient": 10}},
}
EQUATIONS: dict[str, Any] = {
    "grid": {"shape": [48, 40], "size": [48, 40]},
    "boundaries": {"*": {"type": "neumann"}},
}
TIMES: dict[str, dict[str, Any]] = {
    "explicit": {"steps": STEPS},
    "implicit": {"scheme": "implicit", "dt": "1 s", "steps": STEPS},
    "implicit, tolerance": {"scheme": "implicit", "t_end": "10 s", "tolerance": 1e-4},
    "steady": {"scheme": "steady"},
}
ADAPTIVE = {"t_end": 1.0, "tolerance": 1e-6}


def ends(config: dict[str, Any], folder: Path) -> None:
    """Assert that a run ends with the same fields on a GPU, but for rounding."""
    found = {}
    for device in ("cpu", "gpu"):
        chosen = {"devices": device, "precision": "float64"}
        run = {**config, **QUICK, "compute": chosen}
        try:
            result = ts.run(run, folder / device, progress=False)
        except UnsupportedError as error:
            if device == "cpu" or "let compute.devices name cpu" not in str(error):
                raise
            pytest.skip(str(error))
        found[device] = result.fields.isel(time=-1)
        assert all(it.startswith(device) for it in result.report.methods), result.report.methods
    for name, expected in found["cpu"].data_vars.items():
        got, expected = found["gpu"][name].values, expected.values
        scale = float(np.nanmax(np.abs(expected), initial=1e-12))
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-7 * scale, err_msg=str(name))


def shortened(text: str) -> dict[str, Any]:
    """A configuration with a few steps of its own scheme."""
    node, _ = read_yaml(text, "text")
    assert node is not None
    config: dict[str, Any] = node.plain()
    time = config.get("time", {})
    kept = {key: time[key] for key in ("scheme", "dt", "safety", "tolerance") if key in time}
    if "tolerance" in time:
        kept["t_end"] = time.get("t_end")
    elif time.get("scheme") != "steady":
        kept["steps"] = STEPS
    return {**config, "time": kept}


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates(name: str, gpu: Any, tmp_path: Path) -> None:
    ends(shortened(template_text(name)), tmp_path)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda it: it.stem)
def test_examples(path: Path, gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    ends(shortened(path.read_text()), tmp_path)


@pytest.mark.parametrize("scheme", TIMES)
def test_schemes_of_bodies(scheme: str, gpu: Any, tmp_path: Path) -> None:
    ends({**BODY, "time": TIMES[scheme]}, tmp_path)


@pytest.mark.parametrize(
    "scheme", ["euler", "rk2", "ssprk3", "rk4", "rkl2", "etdrk4", "imex", "implicit", "adaptive"]
)
def test_schemes_of_equations(scheme: str, gpu: Any, tmp_path: Path) -> None:
    equation = "laplace(u) + u - u**3"
    initial = {"type": "random", "low": 0.1, "high": 0.9, "seed": 1}
    fields = {"u": {"equation": equation, "initial": initial}}
    time = ADAPTIVE if scheme == "adaptive" else {"scheme": scheme, "dt": 0.05, "steps": STEPS}
    ends({**EQUATIONS, "model": {"type": "pde", "fields": fields}, "time": time}, tmp_path)


@pytest.mark.parametrize("scheme", ["euler", "etdrk4", "imex", "implicit"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, scheme: str, gpu: Any, tmp_path: Path) -> None:
    given = ["u", "0.3 + 0.1*x/48", "0.7 + t"][: int(ARITY[name][0])]
    initial = {"type": "expression", "expression": "0.4 + 0.3*cos(0.3*x)*sin(0.2*y)"}
    equation = f"laplace(u) + 0.1*{name}({', '.join(given)})"
    model = {"type": "pde", "fields": {"u": {"equation": equation, "initial": initial}}}
    time = {"scheme": scheme, "dt": 0.05, "steps": 4}
    ends({**EQUATIONS, "model": model, "time": time}, tmp_path)
