"""What heats the points: the sources of a configuration as one rule by id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tetris_sim.apps.body import VolumeSource
from tetris_sim.apps.courses import Course, clock, formula, read_course
from tetris_sim.config.sections.quantities import NUMBER, POWER, POWER_DENSITY
from tetris_sim.config.sections.varying import Varying
from tetris_sim.model.conduction import Numbers, Parameter, Rule
from tetris_sim.model.formula import Node, Variable
from tetris_sim.model.program import Program


@dataclass(frozen=True, eq=False)
class Heating:
    """One source with its numbers.

    Attributes:
        strength: its power [W] or its density [W/m^3].
        factor: over time.
        is_total: whether the strength is its power.
    """

    strength: Course
    factor: Course
    is_total: bool

    def at(self, times: Numbers) -> Numbers:
        """Its strength at some times, where it is the same everywhere."""
        return self.strength.at(times) * self.factor.at(times)

    @property
    def changes(self) -> bool:
        """Whether it depends on time alone."""
        return self.strength.value is None or self.factor.value is None


def read_source(source: VolumeSource, key: str) -> Heating:
    """The numbers of a source.

    Raises:
        ConfigError: a table cannot be read.
    """
    factor = read_course(source.over_time, Varying(NUMBER, ("t",)), f"{key}.over_time")
    if source.power is not None:
        return Heating(
            read_course(source.power, Varying(POWER, ("t",)), f"{key}.power"), factor, True
        )
    assert source.density is not None
    density = read_course(source.density, Varying(POWER_DENSITY), f"{key}.density")
    return Heating(density, factor, False)


def make_source_rule(
    heatings: Mapping[int, Heating],
    sources_of_id: Sequence[Sequence[int]],
    volumes: Mapping[int, float],
) -> Rule:
    """The power per volume of every point [W/m^3].

    Args:
        heatings: by number of the source.
        sources_of_id: which of them heat the points of each id.
        volumes: of the cells of each source [m^3].
    """
    heats = {n: np.array([n in own for own in sources_of_id], np.float64) for n in heatings}
    for number, heating in heatings.items():
        if heating.is_total:
            heats[number] = heats[number] / volumes[number]

    everywhere = [n for n, heating in heatings.items() if not heating.strength.in_space]
    steady = sum(
        (heatings[n].at(np.zeros(1)) * heats[n] for n in everywhere if not heatings[n].changes),
        np.zeros(len(sources_of_id)),
    )
    waving = [n for n in everywhere if heatings[n].changes]

    def densities(times: Numbers) -> Numbers:
        total = np.tile(steady, (len(times), 1))
        for n in waving:
            total += np.outer(heatings[n].at(times), heats[n])
        return total

    parameters = [Parameter("q", densities if waving else steady)]
    tree: Node = Variable("q")
    for number, heating in heatings.items():
        if heating.strength.in_space:
            tree, more = _add(tree, number, heating, heats[number])
            parameters += [it for it in more if it.name not in {p.name for p in parameters}]
    return Rule(Program(tree), tuple(parameters))


def _add(tree: Node, number: int, heating: Heating, share: Numbers) -> tuple[Node, list[Parameter]]:
    """The sum with one more source, that differs from place to place."""
    name, factor = f"share_{number}", heating.factor
    values: Parameter
    if factor.value is not None:
        values = Parameter(name, share * factor.value)
    else:
        values = Parameter(name, lambda times: np.outer(factor.at(times), share))

    strength = heating.strength
    # Where it heats nothing the formula may be anything, even not finite.
    sum_ = formula(
        "tree + (share*strength if share != 0 else 0)",
        tree=tree,
        share=Variable(name),
        strength=strength.tree,
    )
    return sum_, [values, *([clock()] if "t" in strength.names else [])]
