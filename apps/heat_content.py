"""A body in which something melts or depends on temperature: its state is heat content, and what
people see are temperature and liquid fraction.

A fluid is a material of its own of k = rho c = 1, half a cell of which resists by 1 / h; its heat
content is its temperature, and it does not change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tetris_sim.apps.curves import Properties, liquid_fraction, make_enthalpy
from tetris_sim.conduction import Conduction, Medium, Numbers
from tetris_sim.enthalpy import Enthalpy
from tetris_sim.problem import Field, InitialField, Total, Variable, View
from tetris_sim.slab import Ranges, Slab

if TYPE_CHECKING:
    from tetris_sim.apps.painting import Filling

_UNIT = ((0.0, 1.0),)


def properties_of(filling: Filling) -> Properties:
    """What the curves of a filling follow from."""
    it = filling.substance
    if it is None:
        return Properties(_UNIT, _UNIT, 1.0)
    if it.properties is not None:
        return it.properties
    return Properties(((0.0, it.conductivity[0]),), ((0.0, it.capacity),), 1.0)


def enthalpy_of(
    fillings: Sequence[Filling], kinds: Sequence[int], resistance: Numbers, spacing: Sequence[float]
) -> Enthalpy:
    """The curves of every id.

    Args:
        fillings: what points are filled with.
        kinds: the number of the filling of each id.
        resistance: of contacts, by filling (n, n) [m^2 K/W].
        spacing: array order [m].
    """
    factors = np.ones((len(spacing), len(fillings)))
    closed = np.zeros(len(fillings), np.bool_)
    for number, it in enumerate(fillings):
        if it.substance is not None:
            factors[:, number] = it.substance.factors[: len(spacing)][::-1]
        elif it.fluid is not None and it.fluid.h > 0:
            factors[:, number] = it.fluid.h * np.asarray(spacing) / 2
        else:
            closed[number] = True
    outside = np.array([it.substance is None for it in fillings])
    apart = np.logical_or.outer(closed, closed) | np.logical_and.outer(outside, outside)
    of_id = np.ix_(kinds, kinds)
    return make_enthalpy(
        [properties_of(it) for it in fillings],
        kinds,
        spacing,
        factors=factors[:, kinds],
        resistance=np.where(apart, np.inf, resistance)[of_id],
    )


def in_potentials(medium: Medium, enthalpy: Enthalpy) -> Medium:
    """The medium with the numbers that a step of heat contents needs."""
    alike = np.equal.outer(enthalpy.kinds, enthalpy.kinds)
    held = np.isinf(medium.capacity)
    conductance = np.where(alike & ~held, 1 / (2 * enthalpy.half[:, :, None]), 0.0)
    return Medium(medium.ids, conductance, np.where(held, np.inf, 1.0), medium.names)


def from_temperatures(
    initial: InitialField, conduction: Conduction, dtype: np.dtype[Any]
) -> InitialField:
    """The heat contents of initial temperatures."""
    ids_of, it = conduction.medium.ids, conduction.enthalpy
    assert it is not None

    def heat(slab: Slab) -> Field:
        temperatures = initial(slab)[0].astype(np.float64)
        return it.from_temperature(temperatures, ids_of(slab.spans)).astype(dtype)[np.newaxis]

    return heat


def make_view(
    conduction: Conduction, fillings: Sequence[Filling], heat: Total
) -> tuple[Variable, View]:
    """The state as a variable, and what people see of it.

    Args:
        conduction: the step.
        fillings: of the kinds of its enthalpy.
        heat: what the integral of heat content means.
    """
    state = Variable("heat_content", "J/m^3", "heat content", heat)
    own = Total(heat.name, heat.unit, math.nan)
    temperature = Variable("temperature", "degC", "temperature", own)
    medium, it = conduction.medium, conduction.enthalpy
    assert it is not None
    materials = [properties_of(filling) for filling in fillings]
    curves: list[tuple[Variable, Callable[[Numbers, Any], Numbers]]] = [
        (temperature, lambda state, ids: it.of(it.temperature, state, ids))
    ]
    kinds = it.kinds.tolist()
    if any(materials[kind].melting is not None for kind in kinds):
        liquid = liquid_fraction(materials, kinds)
        integral = Total("liquid volume", heat.unit.replace("J", "m^3", 1), 1.0)
        curves.append(
            (
                Variable("liquid_fraction", "1", "liquid fraction", integral),
                lambda state, ids: np.clip(it.of(liquid, state, ids), 0.0, 1.0),
            )
        )
    held = np.isinf(medium.capacity)
    curves.append((state, lambda state, ids: np.where(held[ids], 0.0, state)))

    def look(box: Ranges, field: Field) -> Field:
        ids, values = medium.ids(box), field[0].astype(np.float64)
        return np.stack([curve(values, ids) for _, curve in curves]).astype(field.dtype)

    return state, View(tuple(variable for variable, _ in curves), look)
