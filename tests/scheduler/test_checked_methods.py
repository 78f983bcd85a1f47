"""The check of methods: it never drops a right one, and it catches mistakes.

Bodies and equations are checked near the states that they are meant for; what rounding can do to
them is measured in perturbed arithmetic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.support.body_samples import settings
from tests.support.check_samples import random_body, random_equations
from tests.support.config_cases import read
from tetris_sim import find_machine, make_plan
from tetris_sim.config import make_config
from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.errors import NumericsError
from tetris_sim.model.conduction import Medium, Parameter, Rule, RuledFace
from tetris_sim.model.method import Method
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.machine.placement import ComputeResource
from tetris_sim.scheduler.tuning.measure import check_method

PLAIN = METHODS[-1]
TESSELLATE = METHODS[1]


def checked(problem: Problem, method: Any = PLAIN, *, effort: float = 0.02) -> str | None:
    parameters = method.parameters(problem)
    return check_method(
        problem,
        method,
        parameters[0] if parameters else {},
        place=ComputeResource(1),
        effort=effort,
    )


def body(shape: list[int], cell: str, faces: dict[str, Any], **keys: Any) -> Problem:
    """A body of one material; `keys` are k, rho, c, what melts, and sections."""
    number, unit = cell.split()
    material: dict[str, Any] = {
        "conductivity": keys.pop("k"),
        "density": keys.pop("rho", 7800),
        "specific_heat": keys.pop("c", 500),
    }
    if melting := keys.pop("melting", None):
        material = {"materials": {"it": material | melting}, "regions": [{"material": "it"}]}
    return make_config(
        settings(
            grid={"shape": shape, "size": [f"{n * float(number)} {unit}" for n in shape]},
            model={"type": "heat", **material, **keys.pop("model", {})},
            boundaries={"*": faces} if "type" in faces else faces,
            initial={"type": "constant", "value": keys.pop("initial", 0)},
            compute={"precision": keys.pop("dtype", "float64")},
            **keys,
        ),
        environ={},
    ).build()


def radiation(ambient: Any, emissivity: float = 0.8) -> dict[str, Any]:
    return {"type": "radiation", "emissivity": emissivity, "ambient": ambient}


WARMING = {"table": [[0, 0], [60, 329]]}
INSULATED = {"type": "neumann"}
LOW_MELTING = {"latent_heat": 2.6e5, "solidus": 1400, "liquidus": 1460}
RADIATING: dict[str, Callable[[], Problem]] = {
    "a fire over time": lambda: body(
        *([50, 50], "1 mm", {"x-": radiation(WARMING), "*": INSULATED}), k=1, rho=2400, c=1000
    ),
    "steel in float32": lambda: body([40, 40], "1 mm", radiation(20), k=50, dtype="float32"),
    "steel in a furnace": lambda: body([40, 40], "1 mm", radiation(800), k=50, dtype="float32"),
    "thin steel": lambda: body([40, 40], "0.05 mm", radiation(-0.37), k=50),
    "wool": lambda: body([40, 40], "5 mm", radiation(0.5), k=0.03, rho=100, c=1000),
    "melting in float32": lambda: body(
        *([40, 40], "1 mm", radiation(1600)),
        k=30, initial=1390, dtype="float32", melting=LOW_MELTING,
    ),
    "cold": lambda: body([30], "1 mm", radiation(-273.1), k=0.2, initial=-270),
    "hardly warmer": lambda: body([19, 17, 13], "1 mm", radiation(20.001), k=400, initial=20),
    "very hot": lambda: body([33, 9], "20 mm", radiation(3000, 1.0), k=0.03, dtype="float32"),
}  # fmt: skip

# Of the kind: near absolute zero, close to the ambient, hot, one axis, three axes.
MORE = ("cold", "hardly warmer", "very hot")


@pytest.mark.parametrize(
    "name", [pytest.param(it, marks=[pytest.mark.full] * (it in MORE)) for it in RADIATING]
)
def test_faces_that_radiate_are_found_right(name: str) -> None:
    assert checked(RADIATING[name]()) is None


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_constant_source_beside_a_face_that_changes_is_read_at_every_step(dtype: str) -> None:
    heated = {"sources": [{"density": 4e7}]}
    problem = body(
        *([30], "5 mm", {"x-": INSULATED, "x+": radiation(WARMING)}),
        k=15, dtype=dtype, model=heated, initial=800,
    )  # fmt: skip
    assert checked(problem, TESSELLATE) is None


EQUATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "a root of what is above 5": (
        "laplace(u) - 0.01*sqrt(u - 5)", "10 + sin(2*pi*x/64)", {"dt": 0.1, "scheme": "euler"}
    ),
    "small values": ("div_grad(u**2, u)", "0.01*(1 + 0.5*sin(2*pi*x/64))", {"scheme": "rk4"}),
    "a logarithm": ("laplace(u)*0.1 + log(u - 2)", "3 + 0.5*cos(2*pi*x/64)", {"dt": 0.01}),
    "below -1": ("dxx(u) + acos(u + 2)*0.1", "-2 + 0.1*sin(2*pi*x/64)", {"dt": 0.1}),
    "large values": ("laplace(u) - exp(u - 700)", "700 + sin(2*pi*x/64)", {"dt": 0.1}),
    # Rounding decides which branch is taken, or whether there is a number.
    "undecided": ("where(laplace(0.1*u) > 0, 1, -1)", "0.7", {"dt": 0.1}),
    "no number at the edge": ("sqrt(laplace(0.1*u))", "0.7", {"dt": 0.1}),
    "no number": ("log(u - 2)", "1", {"dt": 0.1}),
    "an edge in single precision": ("where(u >= 0.1, 1, -1)", "0.1", {"dt": 0.1}),
}  # fmt: skip


def equation(text: str, initial: str, time: dict[str, Any], dtype: str = "float64") -> Problem:
    lines = "".join(f", {key}: {value}" for key, value in time.items())
    return read(f"""\
grid: {{shape: [64], size: [64]}}
model:
  type: pde
  allow_growth: true
  fields:
    u: {{equation: "{text}", initial: {{type: expression, expression: "{initial}"}}}}
boundaries: {{"*": {{type: periodic}}}}
time: {{steps: 100{lines}}}
compute: {{precision: {dtype}}}
""").build()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", EQUATIONS)
def test_equations_are_checked_where_they_have_values(name: str, dtype: str) -> None:
    assert checked(equation(*EQUATIONS[name], dtype)) is None


@pytest.mark.parametrize(
    "seed", [pytest.param(it, marks=[pytest.mark.full] * (it > 2)) for it in range(6)]
)
def test_a_right_method_is_never_dropped(seed: int) -> None:
    assert checked(random_body(seed)) is None
    assert checked(random_equations(seed)) is None


@pytest.mark.full
@pytest.mark.parametrize("first", range(0, 10_000, 100))
def test_no_right_method_of_many_is_dropped(first: int) -> None:
    for seed in range(first, first + 100):
        test_a_right_method_is_never_dropped(seed)


# Mistakes: a method that advances another problem, or at another time.


@dataclasses.dataclass(frozen=True)
class Mistaken:
    """A method that takes a problem for another one."""

    change: Callable[[Problem], Problem]
    step: int = 0
    name: str = "cpu.mistaken"
    device: str = "cpu"
    method: Method = PLAIN

    def parameters(self, problem: Problem) -> Any:
        return self.method.parameters(problem)

    def prepare(self, problem: Problem, *rest: Any) -> Any:
        stepper: Any = self.method.prepare(self.change(problem), *rest)
        stepper.load = partial(stepper.load, step=self.step)
        return stepper


def medium(**change: Callable[[Any], Any]) -> Callable[[Problem], Problem]:
    """A change of numbers of the medium."""

    def changed(problem: Problem) -> Problem:
        old = problem.body.medium
        new = {name: of(getattr(old, name)) for name, of in change.items()}
        conduction = dataclasses.replace(problem.body, medium=dataclasses.replace(old, **new))
        return dataclasses.replace(problem, conduction=conduction)

    return changed


def shifted(ids: Any) -> Any:
    return lambda box: np.roll(ids(box), 1, axis=-1)


def without_contact(problem: Problem) -> Problem:
    old: Medium = problem.body.medium
    conductance = old.conductance.copy()
    conductance[:, 0, 1] = conductance[:, 1, 0] = 1.5 * conductance[:, 0, 1]
    return medium(conductance=lambda _: conductance)(problem)


def scaled_rule(rule: Rule, factor: float, only: str = "") -> Rule:
    def times(it: Parameter) -> Parameter:
        values = it.values
        if callable(values):
            return dataclasses.replace(it, values=lambda t: factor * values(t))
        return dataclasses.replace(it, values=factor * values)

    parameters = tuple(times(it) if it.name.startswith(only) else it for it in rule.parameters)
    return dataclasses.replace(rule, parameters=parameters)


def source(factor: float) -> Callable[[Problem], Problem]:
    def changed(problem: Problem) -> Problem:
        assert problem.body.source is not None
        rule = scaled_rule(problem.body.source, factor)
        return dataclasses.replace(
            problem, conduction=dataclasses.replace(problem.body, source=rule)
        )

    return changed


def faces(of: Callable[[RuledFace], RuledFace], axis: int, side: int) -> Callable[..., Problem]:
    def changed(problem: Problem) -> Problem:
        pairs = [list(pair) for pair in problem.boundary.faces]
        face = pairs[axis][side]
        assert isinstance(face, RuledFace)
        pairs[axis][side] = of(face)
        boundary = dataclasses.replace(
            problem.boundary, faces=tuple((low, high) for low, high in pairs)
        )
        return dataclasses.replace(problem, boundary=boundary)

    return changed


def face(factor: float, only: str = "", axis: int = 0, side: int = 0) -> Callable[..., Problem]:
    return faces(
        lambda it: dataclasses.replace(it, rule=scaled_rule(it.rule, factor, only)), axis, side
    )


def curve(name: str, factor: float) -> Callable[[Problem], Problem]:
    def changed(problem: Problem) -> Problem:
        enthalpy = problem.body.enthalpy
        assert enthalpy is not None
        old = getattr(enthalpy, name)
        new = (
            old * factor
            if name == "knots"
            else dataclasses.replace(old, slopes=factor * old.slopes)
        )
        enthalpy = dataclasses.replace(enthalpy, **{name: new})
        return dataclasses.replace(
            problem, conduction=dataclasses.replace(problem.body, enthalpy=enthalpy)
        )

    return changed


def same(problem: Problem) -> Problem:
    return problem


def slower(problem: Problem) -> Problem:
    return dataclasses.replace(problem, dt=problem.dt * (1 + 1e-6))


LAYERS = {
    "materials": {
        "a": {"conductivity": 1, "density": 2400, "specific_heat": 1000},
        "b": {"conductivity": 5, "density": 2400, "specific_heat": 1000},
    },
    "regions": [{"material": "a"}, {"material": "b", "box": {"x": ["20 mm", "31 mm"]}}],
    "contacts": [{"between": ["a", "b"], "resistance": 1e-3}],
    "sources": [{"density": {"table": [[0, 1e6], [1000, 2e6]]}}],
}


def layers() -> Problem:
    """Two materials, a source over time, and faces of all kinds."""
    return make_config(
        settings(
            grid={"shape": [40, 23], "size": ["40 mm", "23 mm"]},
            model={"type": "heat", **LAYERS},
            boundaries={
                "y-": radiation({"table": [[0, 0], [60, 329]]}),
                "y+": {"type": "robin", "h": 50, "ambient": 80},
                "x-": {"type": "dirichlet", "value": 30},
                "x+": {"type": "neumann", "flux": 1e3},
            },
            initial={"type": "constant", "value": 20},
        ),
        environ={},
    ).build()


def melting() -> Problem:
    return body(
        *([40, 23], "1 mm", {"type": "robin", "h": 500, "ambient": 1600}),
        k=30, initial=1390, melting=LOW_MELTING,
    )  # fmt: skip


SMALL = 1 + 1e-6
MISTAKES: dict[str, tuple[Callable[[], Problem], Any, int]] = {
    "conductivity": (layers, medium(conductance=lambda it: it * SMALL), 0),
    "heat capacity": (layers, medium(capacity=lambda it: it * SMALL), 0),
    "neighbour off by one": (layers, medium(ids=shifted), 0),
    "contact": (layers, without_contact, 0),
    "time step": (layers, slower, 0),
    "source": (layers, source(SMALL), 0),
    "sign of the source": (layers, source(-1.0), 0),
    "no source": (layers, source(0.0), 0),
    "one step late": (layers, same, 1),
    "ambient of radiation": (layers, face(SMALL, "ambient"), 0),
    "conductivity beside radiation": (layers, face(SMALL, "k"), 0),
    "convection": (layers, face(SMALL, "b", 0, 1), 0),
    "ambient of convection": (layers, face(SMALL, "a", 0, 1), 0),
    "temperature of a face": (layers, face(SMALL, "a", 1, 0), 0),
    "sign at a face": (layers, face(-1.0, "b", 1, 0), 0),
    "missed flux": (layers, face(0.0, "a", 1, 1), 0),
    "knots": (melting, curve("knots", SMALL), 0),
    "potential": (melting, curve("potential", SMALL), 0),
    "temperature": (melting, curve("temperature", SMALL), 0),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_caught(name: str) -> None:
    problem, change, step = MISTAKES[name]
    assert checked(problem()) is None
    wrong = checked(problem(), Mistaken(change, step))
    assert wrong is not None
    assert "reference" in wrong


WAVES = ("{0}*laplace(u) - {1}*sqrt(u - 5) + {2}*sin(t) + {3}*x", "10 + sin(2*pi*x/64)")


@pytest.mark.parametrize("place", range(4))
def test_mistakes_in_equations_are_caught(place: int) -> None:
    numbers = [1.0, 0.01, 0.1, 0.001]
    right = equation(WAVES[0].format(*numbers), WAVES[1], {"dt": 0.1})
    assert checked(right) is None
    numbers[place] *= SMALL
    other = equation(WAVES[0].format(*numbers), WAVES[1], {"dt": 0.1})
    wrong = checked(right, Mistaken(lambda it: dataclasses.replace(it, equations=other.equations)))
    assert wrong is not None


def test_equations_one_step_late_are_caught() -> None:
    right = equation(WAVES[0].format(1.0, 0.01, 0.1, 0.001), WAVES[1], {"dt": 0.1})
    assert checked(right, Mistaken(same, 1)) is not None


def test_a_number_where_there_is_none_is_caught() -> None:
    right = equation("log(u - 2)", "1", {"dt": 0.1})
    other = equation("log(abs(u - 2))", "1", {"dt": 0.1})
    wrong = checked(right, Mistaken(lambda it: dataclasses.replace(it, equations=other.equations)))
    assert wrong is not None
    assert "where the reference gives nan" in wrong


def test_what_all_methods_say_of_the_numbers_is_said_once() -> None:
    swinging = {"type": "neumann", "flux": "1e3*sin(1e4*t)"}
    problem = body([8], "1 m", {"x-": swinging, "x+": INSULATED}, k=1)
    compute = ComputeSection(devices="cpu", tuning_budget=0)
    with pytest.raises(NumericsError, match=r"^what is given over time changes too fast"):
        make_plan(problem, find_machine(), compute)
