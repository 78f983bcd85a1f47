"""Random configurations of bodies and equations, to be checked by every method."""

from __future__ import annotations

from typing import Any

import numpy as np

from tetris_sim.config import make_config
from tetris_sim.model.problem import Problem

CONDUCTIVITIES = (0.03, 0.3, 1.0, 15.0, 50.0, 400.0)
SPACINGS = (0.05, 0.5, 1.0, 5.0, 20.0)  # mm
AMBIENTS = (-40.0, -0.37, 0.0, 0.5, 20.0, 329.0, 800.0)


def random_body(seed: int, dtype: str | None = None) -> Problem:
    """A body of materials, tables or melting, with faces of all kinds."""
    rng = np.random.default_rng(seed)
    ndim = int(rng.choice([1, 2, 2, 3]))
    shape = [int(n) for n in rng.integers(5, {1: 200, 2: 45, 3: 17}[ndim], ndim)]
    spacing = float(rng.choice(SPACINGS))
    names = "xyz"[:ndim]

    model: dict[str, Any] = {"type": "heat"}
    kind = rng.choice(["one", "several", "table", "melting"])
    if kind == "one":
        model |= _material(rng)
    else:
        makers = {"several": _material, "table": _tabled, "melting": _melting}
        model["materials"] = {"a": makers[str(kind)](rng), "b": _material(rng)}
        middle = shape[0] * spacing / 2
        model["regions"] = [
            {"material": "a"},
            {"material": "b", "box": {"x": [f"{middle} mm", f"{shape[0] * spacing} mm"]}},
        ]
        if rng.random() < 0.5:
            resistance = float(10 ** rng.uniform(-6, -2))
            model["contacts"] = [{"between": ["a", "b"], "resistance": resistance}]
    if rng.random() < 0.4:
        model["sources"] = [
            {"density": float(10 ** rng.uniform(0, 8))}
            if rng.random() < 0.5
            else {"density": f"{10 ** rng.uniform(0, 6):.4g}*(1 + x*1e3)*exp(-t)"}
        ]

    ambient = float(rng.choice(AMBIENTS))
    warm = float(rng.choice([0.0, 20.0, ambient, float(rng.uniform(-50, 1500))]))
    data = {
        "schema": 1,
        "grid": {"shape": shape, "size": [f"{n * spacing} mm" for n in shape]},
        "model": model,
        "initial": {"type": "constant", "value": warm}
        if rng.random() < 0.7
        else {"type": "expression", "expression": f"{warm} + 30*sin(x/{spacing}e-3)"},
        "boundaries": {f"{name}{side}": _face(rng, ambient) for name in names for side in "-+"},
        "time": {"dt": "auto", "t_end": float(10 ** rng.uniform(0, 4))},
        "compute": {"precision": dtype or str(rng.choice(["float64", "float32"]))},
    }
    return make_config(data, environ={}).build()


def _material(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "conductivity": float(rng.choice(CONDUCTIVITIES)),
        "density": float(rng.choice([100, 2400, 7800])),
        "specific_heat": float(rng.choice([500, 1000, 4200])),
    }


def _tabled(rng: np.random.Generator) -> dict[str, Any]:
    k = float(rng.choice(CONDUCTIVITIES))
    at = np.sort(rng.choice(np.arange(-100, 1500, 7), 4, replace=False))
    table = [[float(T), k * float(rng.uniform(0.5, 2))] for T in at]
    if rng.random() < 0.3:  # a jump
        table[2][0] = table[1][0]
    heat = [[float(T), float(rng.uniform(400, 4000))] for T in at]
    return {
        "conductivity": {"table": table},
        "density": float(rng.choice([100, 2400, 7800])),
        "specific_heat": {"table": heat},
    }


def _melting(rng: np.random.Generator) -> dict[str, Any]:
    solidus = float(rng.choice([0.0, 20.0, 183.0, 660.0]))
    found = {**_material(rng), "latent_heat": float(10 ** rng.uniform(3, 5.5)), "solidus": solidus}
    if rng.random() < 0.5:
        found["liquidus"] = solidus + float(rng.uniform(1, 100))
    return found


def _face(rng: np.random.Generator, ambient: float) -> dict[str, Any]:
    kind = rng.choice(["dirichlet", "neumann", "robin", "radiation", "radiation"])
    over: Any = ambient if rng.random() < 0.6 else [[0, ambient], [60, float(rng.uniform(0, 900))]]
    course = over if isinstance(over, float) else {"table": over}
    if kind == "dirichlet":
        return {"type": "dirichlet", "value": course}
    if kind == "neumann":
        return {"type": "neumann", "flux": float(rng.choice([0, 10, 1e5]))}
    if kind == "robin":
        return {"type": "robin", "h": float(10 ** rng.uniform(0, 4)), "ambient": course}
    found = {"type": "radiation", "emissivity": float(rng.uniform(0.05, 1)), "ambient": course}
    return {**found, "h": 10.0} if rng.random() < 0.3 else found


# Parts of equations: u, v are fields, every one of them is defined near the initial state.
_TERMS = (
    "laplace(u)", "laplace(v)", "div_grad(u**2, v)", "advect({v}, u)", "dx(u)**2", "u*v**2", "u - u**3",
    "sqrt(u - {low})", "log(u - {low})", "exp(-u)", "where(u > v, u, v)", "max(u, v)", "sin(5*u)",
    "u/(1 + v**2)", "sin(x)*u", "cos(t)*v", "tanh(u - v)", "erf(u)", "abs(dx(u))", "hypot(u, v)",
    "clip(u, {low}, {high})", "sign(laplace(u))", "heaviside(u - v)", "u**1.5", "atan2(u, v)",
)  # fmt: skip


def random_equations(seed: int) -> Problem:
    """Two fields of any magnitude, each with some terms."""
    rng = np.random.default_rng(seed)
    ndim = int(rng.choice([1, 1, 2]))
    size = [64] if ndim == 1 else [18, 23]
    low, width = float(rng.choice([0.0, 1.0, 5.0, -3.0])), float(10 ** rng.uniform(-3, 1))
    terms = [
        it.format(low=low, high=low + width, v=", ".join("v" * ndim))
        for it in rng.choice([it for it in _TERMS if it != "u**1.5" or low >= 0], 6, replace=False)
    ]
    texts = [
        " + ".join(f"{rng.uniform(-0.2, 0.2):.3f}*({it})" for it in some)
        for some in (terms[:3], terms[3:])
    ]
    flat = rng.random() < 0.3
    wave = "0.5" if flat else "(0.5 + 0.45*sin(x + 0.3))"
    data = {
        "grid": {"shape": size, "size": [float(n) for n in size]},
        "model": {
            "type": "pde",
            "allow_growth": True,
            "fields": {
                name: {
                    "equation": text,
                    "initial": {"type": "expression", "expression": f"{low} + {width:.4g}*{wave}"},
                }
                for name, text in zip("uv", texts, strict=True)
            },
        },
        "boundaries": {"*": {"type": str(rng.choice(["periodic", "neumann"]))}},
        "time": {"steps": 10, "dt": 0.01, "scheme": str(rng.choice(["euler", "rk2", "rk4"]))},
        "compute": {"precision": str(rng.choice(["float64", "float32"]))},
    }
    return make_config(data, environ={}).build()
