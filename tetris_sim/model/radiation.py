"""Heat between two surfaces that radiate to each other, each half a cell from a point whose
temperature is known, as one formula for every device.

With r and r' the resistances from the points to their surfaces, the heat q that arrives here from
there obeys

    q = g (t' - t) + e (t'^4 - t^4),        t = T + r q,   t' = T' - r' q        (t in kelvin)

where g is what a contact or a fluid conducts beside the radiation, and e the Stefan-Boltzmann
constant times the effective emissivity. Between the two sides of a gap, whose areas are the same,
this is 1 / (1/e1 + 1/e2 - 1); of a surface in large surroundings it is its own emissivity (M. F.
Modest, Radiative Heat Transfer, 3rd ed., 2013, section 5.3). Newton's method begins with the flow
as if e (t^3 + ...) were that of both points, so t and t' lie between T and T'.

Seen from the other side all roundings are the same with the opposite sign, so that what leaves one
cell enters the other one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tetris_sim.model.formula import Node, Operation, Variable, compile_expression, evaluate
from tetris_sim.model.program import Program

Numbers = npt.NDArray[np.float64]

STEFAN_BOLTZMANN = 5.670374419e-8  # W/(m^2 K^4), exact since the SI of 2019
KELVIN = 273.15  # 0 degC in kelvin
# Temperatures here and there [degC], resistances from there to the surfaces, that of the contact,
# and the radiance.
RADIATING_INPUTS = ("here", "there", "own", "other", "contact", "radiance")
# Of half cells that resist 10 times what radiation does and of temperatures from 1 K to 3000 K,
# 6 steps reach rounding errors: `tests/unit/test_radiation.py` measures it.
_NEWTON_STEPS = 6


def _formula(text: str, parts: dict[str, Node]) -> Node:
    """Compile a text whose names stand for parts of a formula."""
    tree = compile_expression(text, [*parts]).tree

    def put(node: Node) -> Node:
        match node:
            case Variable(name):
                return parts[name]
            case Operation(name, below):
                return Operation(name, tuple(map(put, below)))
        return node

    return put(tree)


def _radiating() -> Program:
    """The flow into `here`, per what its resistances and its radiance are given for."""
    parts: dict[str, Node] = {name: Variable(name) for name in RADIATING_INPUTS}

    def add(**texts: str) -> None:
        for name, text in texts.items():
            parts[name] = _formula(text, parts)

    # Sums of two products would round differently when seen from the other side: whichever of them
    # is contracted with the sum. Products of sums and of differences do not.
    add(a=f"here + {KELVIN}", b=f"there + {KELVIN}", g="1/contact", both="own + other")
    add(sum="b + a", rise="b - a")
    add(linear="g + radiance*(sum*(sum*sum + rise*rise))/2")
    add(flow="rise*linear/(both*linear + 1)")
    for _ in range(_NEWTON_STEPS):
        add(t="a + own*flow", u="b - other*flow")
        add(sum="u + t", rise="u - t")
        add(linear="g + radiance*(sum*(sum*sum + rise*rise))/2")
        add(x="g + 4*radiance*(t*t*t)", y="g + 4*radiance*(u*u*u)")
        add(steep="(both*(x + y) + (own - other)*(x - y))/2 + 1")
        add(flow="flow + (rise*linear - flow)/steep")
    return Program(parts["flow"])


RADIATING = _radiating()


@dataclass(frozen=True, eq=False)
class RadiatedFlow:
    """Flows between radiating surfaces and their slopes.

    Attributes:
        flow: from there to here.
        cooling: by how much less flows per degree that it is warmer here.
        warming: by how much more flows per degree that it is warmer there.
    """

    flow: Numbers
    cooling: Numbers
    warming: Numbers

    @property
    def conductance(self) -> Numbers:
        """The larger slope: with it as a conductance, what is left of the flow shrinks in every
        solution, whichever side is warmer.
        """
        return np.maximum(self.cooling, self.warming)


def radiated(
    here: Numbers, there: Numbers, own: Numbers, other: Numbers, contact: Numbers, radiance: Numbers
) -> RadiatedFlow:
    """Return what flows between surfaces, with its slopes.

    >>> it = radiated(*(np.array([x]) for x in (0.0, 100.0, 0.0, 0.0, np.inf, STEFAN_BOLTZMANN)))
    >>> it.flow.round(6), it.cooling.round(6)
    (array([783.716326]), array([4.622483]))

    Args:
        here: temperature of points [degC].
        there: temperature on the other side [degC].
        own: resistance from the points to their surfaces.
        other: the same on the other side.
        contact: resistance beside the radiation; infinite for none.
        radiance: effective emissivity times the Stefan-Boltzmann constant; all for the same area.
    """
    given = (here, there, own, other, contact, radiance)
    flow = np.asarray(evaluate(RADIATING.tree, dict(zip(RADIATING_INPUTS, given, strict=True))))
    surfaces = here + KELVIN + own * flow, there + KELVIN - other * flow
    x, y = (1 / contact + 4 * radiance * t**3 for t in surfaces)
    steep = own * x + other * y + 1
    return RadiatedFlow(flow, x / steep, y / steep)
