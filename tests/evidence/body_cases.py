"""Bodies of several materials, melting, equations, and states that are solved for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .digests import Config, merged

_TWO: Config = {"devices": ["cpu", "cpu"], "threads": 2, "shares": [2, 3]}
_ONE: Config = {"devices": "cpu", "threads": 1}
# Refused with other numbers each time: the check of the method against the reference fails.
_UNSTEADY = ("results/body/block/cpu.tessellate/float32",)
_CPU = ("cpu.plain", "cpu.tessellate", "cpu.stream")
_GPU = ("gpu.plain", "gpu.stream")

MATERIALS: Config = {
    "die": "silicon",
    "paste": {"conductivity": 4, "density": 2500, "specific_heat": 900},
    "board": {"conductivity": {"x": 20, "y": 9}, "density": 1900, "specific_heat": 1000},
    "pins": {"material": "copper", "density": 8900},
}
PLATE: Config = {
    "grid": {"shape": [45, 38], "size": ["16 mm", "12 mm"]},
    "model": {
        "type": "heat",
        "materials": MATERIALS,
        "regions": [
            {"fluid": {"ambient": "25 degC", "h": 15}},
            {"material": "board", "box": {"y": [0, "5 mm"]}},
            {"material": "paste", "box": {"x": ["4 mm", "12 mm"], "y": ["5 mm", "6 mm"]}},
            {"material": "die", "name": "chip", "box": {"x": [4e-3, 12e-3], "y": [6e-3, 9e-3]}},
            {"material": "pins", "where": "hypot(x - 2e-3, y - 3e-3) < 1.5e-3"},
            {"void": True, "box": {"x": ["14 mm", "16 mm"], "y": [0, "3 mm"]}},
        ],
        "contacts": [{"between": ["die", "paste"], "resistance": 1e-5}],
        "sources": [
            {"region": "chip", "power": "2 kW", "over_time": [[0, 0.2], ["1 ms", 1], [1, 0.3]]},
            {"density": "1e6*exp(-(x - 8e-3)**2/1e-6)*sin(20*t)**2", "material": "die"},
        ],
    },
    "initial": {"type": "expression", "expression": "25 + 40*sin(pi*x/Lx)*y/Ly"},
    "boundaries": {
        "y+": {"type": "radiation", "emissivity": 0.8, "ambient": "25 degC", "h": 15},
        "y-": [
            {"type": "neumann", "flux": 1e4, "where": "x < 4e-3"},
            {"type": "robin", "h": 200, "ambient": {"table": [[0, 25], [1, 40]]}},
        ],
        "x": {"type": "robin", "h": "15 + 5*sin(2*pi*t)", "ambient": "25 degC"},
    },
    "time": {"dt": "auto", "steps": 13},
    "compute": {"tuning_budget": 0},
}
BLOCK: Config = merged(
    PLATE,
    {
        "grid": {"shape": [19, 17, 13], "size": ["16 mm", "12 mm", "6 mm"]},
        "model": {
            "sources": [
                {"region": "chip", "power": "2 W"},
                {
                    "type": "beam",
                    "power": "1 W",
                    "absorptivity": 0.35,
                    "d4sigma": "4 mm",
                    "face": "z-",
                    "path": {"x": "8e-3 + 0.02*t", "y": "6 mm"},
                },
            ]
        },
        "boundaries": {"z": {"type": "robin", "h": 30, "ambient": 20}},
    },
)
ROD: Config = {
    "grid": {"shape": [157], "size": ["39 cm"]},
    "model": {
        "type": "heat",
        "materials": {"brick": "brick", "wool": MATERIALS["paste"]},
        "regions": [
            {"material": "brick"},
            {"material": "wool", "box": {"x": ["20 cm", "30 cm"]}},
        ],
    },
    "initial": {"type": "expression", "expression": "20 - 15*x/Lx"},
    "boundaries": {
        "x-": {"type": "robin", "h": 7.7, "ambient": 20},
        "x+": {"type": "robin", "h": 25, "ambient": "5 + 4*sin(t/1e3)"},
    },
    "time": {"dt": "auto", "steps": 13},
    "compute": {"tuning_budget": 0},
}
_SLABS: Config = {
    "materials": {"a": "copper", "b": MATERIALS["paste"]},
    "regions": [{"material": "a"}, {"material": "b", "box": {"x": [0, "4 mm"]}}],
    "contacts": [],
    "sources": [],
}
GRADED: Config = merged(
    PLATE,
    {
        "grid": {
            "shape": [23, 20],
            "size": ["36.5 mm", "5 mm"],
            "graded": {"x": {"segments": [{"to": "35 mm", "n": 20}, {"to": "36.5 mm", "n": 3}]}},
        },
        "model": _SLABS,
        "boundaries": {"y-": {"type": "neumann"}},
    },
)
GRADED_CLOSED: Config = {
    **GRADED,
    "boundaries": {"x-": {"type": "robin", "h": 15, "ambient": 20}, "*": {"type": "neumann"}},
}
SOLDER: Config = {
    "conductivity": {"table": [["20 degC", 60], ["217 degC", 53], ["221 degC", 33]]},
    "density": 7400,
    "specific_heat": {"table": [["20 degC", 220], ["217 degC", 250]]},
    "latent_heat": "60 kJ/kg",
    "solidus": "217 degC",
    "liquidus": "221 degC",
}
MELTING: Config = {
    "grid": {"shape": [41, 33], "size": ["3 mm", "2 mm"]},
    "model": {
        "type": "heat",
        "materials": {"board": MATERIALS["board"], "solder": SOLDER, "lead": "brass"},
        "regions": [
            {"material": "board"},
            {"material": "solder", "where": "hypot(x - 1.5e-3, y - 0.9e-3) < 0.7e-3"},
            {"material": "lead", "box": {"x": ["1.4 mm", "1.6 mm"], "y": ["1 mm", "2 mm"]}},
        ],
        "contacts": [{"between": ["lead", "solder"], "resistance": 1e-6}],
        "sources": [{"material": "lead", "power": "25 kW", "over_time": [[0, 1], [1, 0]]}],
    },
    "initial": {"type": "expression", "expression": "195 + 40*y/Ly"},
    "boundaries": {
        "x": {"type": "dirichlet", "value": 205},
        "y-": {"type": "neumann"},
        "y+": {"type": "robin", "h": 100, "ambient": 240},
    },
    "time": {"dt": "auto", "steps": 13},
    "compute": {"tuning_budget": 0},
}
_CURVED = {key: SOLDER[key] for key in ("conductivity", "density", "specific_heat")}
CURVES: Config = {
    **MELTING,
    "model": {
        **MELTING["model"],
        "materials": {**MELTING["model"]["materials"], "solder": _CURVED},
    },
}
MELTING_3D: Config = merged(
    MELTING,
    {
        "grid": {"shape": [15, 13, 11], "size": ["3 mm", "2 mm", "2 mm"]},
        "boundaries": {"z": {"type": "neumann"}},
    },
)
BODIES = {
    "rod": ROD,
    "plate": PLATE,
    "block": BLOCK,
    "graded": GRADED,
    "graded, closed": GRADED_CLOSED,
    "melting": MELTING,
    "curves": CURVES,
    "melting in 3D": MELTING_3D,
}

GRAY_SCOTT: Config = {
    "grid": {"shape": [43, 37], "spacing": [1, 1]},
    "model": {
        "type": "pde",
        "constants": {"F": 0.0545, "k": 0.062, "Du": 0.16, "Dv": "Du/2"},
        "fields": {
            "u": {
                "equation": "Du*laplace(u) - u*v**2 + F*(1 - u)",
                "initial": {"type": "random", "low": 0.5, "high": 1},
            },
            "v": {
                "equation": "Dv*laplace(v) + u*v**2 - (F + k)*v",
                "initial": {"type": "random", "low": 0, "high": 0.5, "seed": 3},
                "boundaries": {"x-": {"type": "dirichlet", "value": "0.1*sin(t)"}},
            },
        },
    },
    "boundaries": {"*": {"type": "neumann"}},
    "time": {"dt": 0.5, "steps": 13},
    "compute": {"tuning_budget": 0},
}


def _one(equation: str, constants: Config, initial: Config, shape: list[int]) -> Config:
    fields = {"c": {"equation": equation, "initial": initial}}
    return {
        "grid": {"shape": shape, "spacing": [1.0] * len(shape)},
        "model": {"type": "pde", "constants": constants, "fields": fields},
        "boundaries": {"*": {"type": "periodic"}},
        "time": {"dt": "auto", "steps": 13},
        "compute": {"tuning_budget": 0},
    }


_NOISE = {"type": "random", "low": -0.1, "high": 0.1, "seed": 5}
CAHN_HILLIARD = _one("laplace(c**3 - c - g*laplace(c))", {"g": 1.0}, _NOISE, [37, 29])
PLUME = _one(
    "-advect(v*cos(0.1*t), v*sin(0.1*t), c) + 0.4*laplace(c) + exp(-(x - 9)**2)",
    {"v": 0.5},
    _NOISE,
    [37, 29],
)
FIN = _one("D*laplace(c) - k*c", {"D": 2e-2, "k": 0.5}, _NOISE, [41, 24])
_GERMS = {"type": "random", "low": 0, "high": 0.4, "seed": 6}
FISHER_3D = _one("D*laplace(c) + c*(1 - c)", {"D": 0.3}, _GERMS, [15, 13, 11])
WAVE: Config = {
    "grid": {"shape": [39, 31], "spacing": ["1 cm", "1 cm"]},
    "model": {
        "type": "pde",
        "accuracy": 4,
        "constants": {"c": "where(x + 0.3*y < 0.2, 340, 170)"},
        "fields": {
            "p": {
                "second_order": "c**2*laplace(p) - 20*p_velocity",
                "initial": {"type": "gaussian", "amplitude": 1, "sigma": "5 cm"},
            }
        },
    },
    "boundaries": {"*": {"type": "dirichlet", "value": 0}},
    "time": {"dt": "auto", "steps": 13},
    "compute": {"tuning_budget": 0},
}
EQUATIONS = {
    "gray-scott": GRAY_SCOTT,
    "cahn-hilliard": CAHN_HILLIARD,
    "plume": PLUME,
    "fin": FIN,
    "fisher in 3D": FISHER_3D,
    "wave": WAVE,
}
_HEAT: Config = {
    "grid": {"shape": [37, 29], "size": ["15 mm", "12 mm"]},
    "model": {"type": "heat", "material": "copper"},
    "initial": {"type": "gaussian", "amplitude": 100, "sigma": "2 mm"},
    "boundaries": {"x-": {"type": "dirichlet", "value": 20}, "*": {"type": "neumann"}},
    "time": {"dt": "auto", "t_end": "5 ms"},
    "compute": {"tuning_budget": 0},
}
_FIN_HELD: Config = {
    **FIN,
    "boundaries": {"x-": {"type": "dirichlet", "value": 1}, "*": {"type": "neumann"}},
}
_STEADY_PLATE: Config = {
    **PLATE,
    "time": {"scheme": "steady"},
    "boundaries": {"*": {"type": "robin", "h": 15, "ambient": 25}},
    "model": merged(PLATE["model"], {"sources": [{"region": "chip", "power": 2e3}]}),
}


def _timed(config: Config, time: Config) -> Config:
    return {**config, "time": time}


SOLVED: dict[str, Config] = {
    "heat spectral": _timed(_HEAT, {"scheme": "spectral", "t_end": "5 ms"}),
    "heat implicit": _timed(_HEAT, {"scheme": "implicit", "t_end": "5 ms"}),
    "heat implicit dt": _timed(_HEAT, {"scheme": "implicit", "dt": "1 ms", "t_end": "5 ms"}),
    "heat steady": _timed(_HEAT, {"scheme": "steady"}),
    "body steady": _STEADY_PLATE,
    "body implicit": _timed(_STEADY_PLATE, {"scheme": "implicit", "dt": 0.01, "t_end": 0.05}),
    "fin steady": _timed(_FIN_HELD, {"scheme": "steady"}),
    "fin spectral": _timed(FIN, {"scheme": "spectral", "t_end": 20}),
    "fin implicit": _timed(_FIN_HELD, {"scheme": "implicit", "dt": 2, "t_end": 10}),
    "until": _timed(_HEAT, {"t_end": "50 ms", "until": {"change": "1e5 K/s", "every": "5 steps"}}),
    "graded spectral": _timed(GRADED, {"scheme": "spectral", "t_end": 0.1}),
}


def _with(config: Config, **compute: Any) -> Config:
    return merged(config, {"compute": compute})


def cpu_cases() -> Iterator[tuple[str, Config]]:
    """Key and configuration of each."""
    for name, config in BODIES.items():
        for method in _CPU:
            for precision in ("float64", "float32", "float16"):
                asked = {"method": method, "precision": precision}
                key = f"results/body/{name}/{method}/{precision}"
                if key in _UNSTEADY:
                    continue
                yield f"{key}/1 thread", _with(config, **asked, **_ONE)
                if precision != "float16":
                    yield f"{key}/2 workers", _with(config, **asked, **_TWO)
    for name, config in EQUATIONS.items():
        schemes = ("leapfrog", "rk4") if name == "wave" else ("euler", "rk2", "rk4", "rkl2")
        for scheme in schemes:
            chosen = merged(config, {"time": {"scheme": scheme}})
            key = f"results/equations/{name}/{scheme}"
            yield f"{key}/float64/1 thread", _with(chosen, method="cpu.plain", **_ONE)
            yield f"{key}/float64/2 workers", _with(chosen, method="cpu.plain", **_TWO)
            if scheme in ("euler", "leapfrog"):
                asked = {"method": "cpu.stream", **_ONE}
                yield f"{key}/stream/1 thread", _with(chosen, **asked)
                yield f"{key}/float32/1 thread", _with(chosen, precision="float32", **_ONE)
    for scheme in ("euler", "rk2", "rk4"):
        time: Config = {"scheme": scheme, "tolerance": 1e-5, "t_end": 2, "dt": 0.5}
        for team, compute in (("1 thread", _ONE), ("2 workers", _TWO)):
            key = f"results/equations/gray-scott/adaptive {scheme}/{team}"
            yield key, _with(_timed(GRAY_SCOTT, time), **compute)
    for name, config in SOLVED.items():
        yield f"results/solved/{name}/1 thread", _with(config, **_ONE)
        yield f"results/solved/{name}/2 threads", _with(config, devices="cpu", threads=2)


def gpu_cases() -> Iterator[tuple[str, Config]]:
    """The same on a GPU."""
    for name, config in BODIES.items():
        ndim = len(config["grid"]["shape"])
        for method in _GPU:
            grid: Config = config["grid"]
            if "graded" not in grid:
                shape = {1: [3001], 2: [203, 151], 3: [67, 45, 39]}[ndim]
                grid = {**grid, "shape": shape}
            asked = _with({**config, "grid": grid}, devices="gpu", method=method)
            yield f"results/gpu body/{name}/{method}/float64", asked
    for name, config in EQUATIONS.items():
        schemes = ("leapfrog", "rk4") if name == "wave" else ("euler", "rk2", "rk4", "rkl2")
        for scheme in schemes:
            for method in _GPU:
                chosen = merged(config, {"time": {"scheme": scheme}})
                key = f"results/gpu equations/{name}/{method}/{scheme}"
                yield key, _with(chosen, devices="gpu", method=method)
    for scheme in ("euler", "rk2", "rk4"):
        time: Config = {"scheme": scheme, "tolerance": 1e-5, "t_end": 2, "dt": 0.5}
        key = f"results/gpu equations/gray-scott/gpu.plain/adaptive {scheme}"
        yield key, _with(_timed(GRAY_SCOTT, time), devices="gpu", method="gpu.plain")
    for name, config in SOLVED.items():
        yield f"results/gpu solved/{name}", _with(config, devices="gpu")
