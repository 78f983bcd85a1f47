"""Conditions on the faces of a body, as rules: ghost = program(mirror, numbers by code and step).

A face gives a temperature, or heat flows through it. With k the conductivity of the mirror point
and d its distance from the ghost, what flows in per area is k (ghost - mirror) / d, and the
temperature of the face is the mean of the two. So the ghost of

    a flux q and convection      2k/d (T - mirror) = q + h (ambient - T),  T = (ghost + mirror) / 2
    radiation besides            ... + emissivity sigma (ambient^4 - T^4), in kelvin

follows from one equation for T. Without radiation it is linear, else it is solved by Newton's
method. With g = 2k/d the equation is (g + h) T + s T^4 = B; T is below both B / (g + h) and
(B / s)^(1/4), and the smaller of these is at most 1.38 T. From there 5 steps reach rounding errors:
`tests/unit/test_apps_rules.py` measures it. Where q, h or emissivity are formulas of T themselves,
the same begins with their values at the mirror point, and goes on with the derivatives of these
formulas; correlations of convection are such formulas.

Where the state is heat content a ghost is a potential, whose difference over d flows (times the
factor of the axis): a flux then is exact, a temperature becomes the potential that the material has
there, and what follows from the temperature T of the mirror point, ghost(T), becomes
mirror + k (ghost(T) - T) with its conductivity k of now.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tetris_sim.apps.heat.sources import VolumeSource
from tetris_sim.apps.time_functions import (
    TimeFunction,
    clock,
    formula,
    in_program,
    knots_of,
    names_in,
    read_course,
    substitute,
)
from tetris_sim.config.sections.quantities import NUMBER, POWER, POWER_DENSITY
from tetris_sim.config.sections.varying import OF_SURFACE, SURFACE, Varying
from tetris_sim.model.conduction import (
    AFFINE,
    CONDUCTIVITY,
    MIRROR,
    TEMPERATURE,
    Enthalpy,
    Ids,
    Numbers,
    Parameter,
    Rule,
    RuledFace,
)
from tetris_sim.model.equations import tap
from tetris_sim.model.formula import Comparison, Constant, Node, Operation, Variable
from tetris_sim.model.linearisation import gradients
from tetris_sim.model.program import Program, Programs
from tetris_sim.model.radiation import KELVIN, STEFAN_BOLTZMANN
from tetris_sim.model.slab import Ranges
from tetris_sim.model.step_control import Signal

_KELVIN = Constant(KELVIN)
_NEWTON_STEPS = 5
# Where h and others depend on T: of correlations, and of formulas that may be of any steepness.
_NEWTON_STEPS_OF_CORRELATIONS, _NEWTON_STEPS_OF_FORMULAS = 5, 12


@dataclass(frozen=True, eq=False)
class Surface:
    """Where on the grid a face lies.

    Attributes:
        distance: between mirror point and ghost [m], or the angle between them [rad].
        conductivity: along the axis by id; any positive number where K is 0 [W/(m K)]. With
            enthalpy by how much it is larger than along x.
        position: coordinate of the face by the name of its axis [m].
        enthalpy: if heat content is the state.
        by_radius: whether the distance is an angle, so that r times it is meant.
    """

    distance: float
    conductivity: Numbers
    position: dict[str, Node]
    enthalpy: Enthalpy | None = None
    by_radius: bool = False

    @property
    def apart(self) -> Node:
        """The distance of the ghost [m]."""
        # The radius of the mirror point: both ends of the arc lie on one circle.
        if not self.by_radius:
            return Constant(self.distance)
        return Operation("multiply", (Variable("r"), Constant(self.distance)))

    @property
    def mirror(self) -> Node:
        """The temperature of the mirror point."""
        return Variable(MIRROR if self.enthalpy is None else TEMPERATURE)

    @property
    def k(self) -> Node:
        """The conductivity of the mirror point along the axis."""
        if self.enthalpy is None:
            return Variable("k")
        return Operation("multiply", (Variable(CONDUCTIVITY), Variable("k")))

    def ghost(self, temperature: Node) -> Node:
        """The ghost that stands for a temperature beyond the face."""
        if self.enthalpy is None:
            return temperature
        return formula(
            "mirror + k*(beyond - here)",
            mirror=Variable(MIRROR),
            k=Variable(CONDUCTIVITY),
            beyond=temperature,
            here=self.mirror,
        )

    def values(self, temperatures: Numbers) -> Numbers:
        """Convert temperatures (n,) into states that drive heat, (n, 1) or by id (n, n_ids)."""
        if (it := self.enthalpy) is None:
            return temperatures[:, None]
        # Each material has its own curve, so one temperature is as many potentials as there are
        # ids.
        shape = (len(temperatures), len(it.kinds))
        ids = np.broadcast_to(np.arange(shape[1]), shape)
        state = it.from_temperature(np.broadcast_to(temperatures[:, None], shape), ids)
        return it.of(it.potential, state, ids)


def held(value: TimeFunction, surface: Surface, *, on_ghost: bool = False) -> Rule:
    """A temperature on the face, or on the ghost."""
    if value.in_space:
        tree = formula(
            "value" if on_ghost else "2*value - mirror", value=value.tree, mirror=surface.mirror
        )
        return _finished(
            surface.ghost(tree), [clock(value.knots)] if "t" in value.names else [], surface
        )
    # Linear through the face: (ghost + mirror)/2 = value; held on the ghost itself, ghost = value.
    factor, b = (1.0, 0.0) if on_ghost else (2.0, -1.0)
    return _affine(lambda times: factor * surface.values(value.at(times)), np.array([b]), [value])


def flowing(
    surface: Surface,
    *,
    flux: Sequence[TimeFunction] = (),
    h: TimeFunction | None = None,
    ambient: TimeFunction | None = None,
    emissivity: float = 0.0,
    radiation: Sequence[tuple[TimeFunction, TimeFunction]] = (),
    correlations: Sequence[Callable[[Node, Node], Node]] = (),
    beams: Sequence[tuple[Node, list[Parameter]]] = (),
) -> Rule:
    """Heat that flows through the face.

    Args:
        surface: where it is.
        flux: into the body [W/m^2]; they are added.
        h: of convection [W/(m^2 K)].
        ambient: of convection and radiation [degC].
        emissivity: of radiation; 0 for none.
        radiation: emissivities and temperatures [degC] of more surroundings.
        correlations: more h, as formulas of the temperatures of face and fluid.
        beams: more fluxes as parts of the program.
    """
    h, ambient = h or TimeFunction(), ambient or TimeFunction()
    surroundings = [(TimeFunction(Constant(emissivity)), ambient)] * (emissivity != 0)
    surroundings += radiation
    # Three kinds of balance: linear with numbers for the whole face (a table), linear with formulas
    # of place (one expression), and not linear (Newton's method).
    curved = bool(correlations) or any(it.by_temperature for it in (*flux, h)) or surroundings
    given, flows = [*flux, h, ambient], h.value == 0 and not curved
    linear = (surface.enthalpy is None or flows) and (not surface.by_radius or _is_nothing(flux, h))
    if linear and not curved and not beams and not any(it.in_space for it in given):
        return _linear(surface, flux, h, ambient)

    parts: dict[str, Node] = {
        "mirror": surface.mirror,
        "d": surface.apart,
        "k": surface.k,
    }
    parameters = [Parameter("k", surface.conductivity)]
    named = {"h": h, "ambient": ambient, **{f"flux_{n}": it for n, it in enumerate(flux)}}
    for name, course in named.items():
        parts[name], more = in_program(course, name)
        parameters += more
    # Sun, beams and given fluxes add up to one before the balance is solved.
    total = [parts.pop(f"flux_{n}") for n in range(len(flux))]
    for tree, more in beams:
        total.append(tree)
        parameters += more
    parts["flux"] = functools.reduce(_sum, total) if total else Constant(0.0)

    # A flux alone needs no temperature of the face: in the variable that drives heat, potential or
    # temperature, the ghost is the mirror point plus flux d/k.
    if flows:
        parts |= {"mirror": Variable(MIRROR), "k": Variable("k")}
        tree = formula("mirror + d/k*flux", **{k: parts[k] for k in ("mirror", "d", "k", "flux")})
        return _finished(tree, parameters, surface)
    if not curved:
        # Convection: half a distance of conduction in series with h, solved for the ghost.
        text = "((2*k - h*d)*mirror + 2*d*(h*ambient + flux))/(2*k + h*d)"
        return _finished(surface.ghost(formula(text, **parts)), parameters, surface)
    terms = []
    for number, (share, around) in enumerate(surroundings):
        # The first one is as warm as the air, if it is the only one of the face.
        name = "ambient" if around is ambient else f"around_{number}"
        tree, more = in_program(around, name)
        parameters += more
        s: Node = Constant((share.value or 0.0) * STEFAN_BOLTZMANN)
        if share.value is None:
            its, more = in_program(share, f"emissivity_{number}")
            s = formula("s*e", s=Constant(STEFAN_BOLTZMANN), e=its)
            parameters += more
        terms.append((s, tree))
    tree = _exchanging(parts, terms, correlations)
    return _finished(surface.ghost(tree), parameters, surface)


def _sum(a: Node, b: Node) -> Node:
    return Operation("add", (a, b))


def _linear(
    surface: Surface, flux: Sequence[TimeFunction], h: TimeFunction, ambient: TimeFunction
) -> Rule:
    """A flux and convection that are the same everywhere."""
    # ghost = a + b mirror, with a = 2 d (flux + h ambient)/(2 k + h d), b = (2 k - h d)/(2 k + h
    # d).
    k, d = surface.conductivity[None, :], surface.distance

    def a(times: Numbers) -> Numbers:
        heat = sum((it.at(times) for it in flux), h.at(times) * ambient.at(times))
        return np.asarray(2 * d * heat[:, None] / (2 * k + h.at(times)[:, None] * d))

    def b(times: Numbers) -> Numbers:
        hd = h.at(times)[:, None] * d
        return np.asarray((2 * k - hd) / (2 * k + hd))

    lasting = (
        _constant([*flux]) and sum(float(it.value or 0.0) for it in flux) == 0 and h.value == 0
    )
    steady = b(np.zeros(1))[0]
    return _affine(
        a, np.ones(1) if lasting else steady if h.value is not None else b, [*flux, h, ambient]
    )


def _exchanging(
    parts: dict[str, Node],
    terms: Sequence[tuple[Node, Node]],
    correlations: Sequence[Callable[[Node, Node], Node]],
) -> Node:
    """The ghost beyond a face whose balance is not linear; see the head of this file.

    Args:
        parts: mirror, d, k, flux, h and ambient.
        terms: emissivity times sigma and the temperature [degC] of each of its surroundings.
        correlations: see `flowing`.
    """
    here = tap(SURFACE, (0,))
    given = functools.reduce(_sum, [parts["h"], parts["flux"], *(s for s, _ in terms)])
    own = SURFACE in names_in(given)
    parts = {name: substitute(it, {SURFACE: here}) for name, it in parts.items()}
    terms = [(substitute(s, {SURFACE: here}), around) for s, around in terms]
    for more in correlations:
        parts["h"] = _sum(parts["h"], more(here, parts["ambient"]))

    # What changes with the temperature of the face is taken at that of the mirror point first.
    at_mirror = {here.name: parts["mirror"]}
    first = {name: substitute(it, at_mirror) for name, it in parts.items()}
    t, b, w, s = _radiating(first, [(substitute(s, at_mirror), around) for s, around in terms])
    if not own and not correlations:
        for _ in range(_NEWTON_STEPS):
            # Newton's step for s t^4 + w t = b; the function is convex and increasing, so from
            # above it converges without overshooting.
            cube = formula("s*t**3", s=s, t=t)
            t = formula("(3*c*t + b)/(w + 4*c)", c=cube, t=t, b=b, w=w)
        return formula("2*(t - zero) - mirror", t=t, zero=_KELVIN, mirror=parts["mirror"])

    # The balance g (mirror - t) + gain(t) = 0, with the derivative of gain taken from its formula.
    gain = formula("flux + h*(ambient - here)", here=here, **parts)
    for its, around in terms:
        text = "gain + s*((around + zero)**4 - (here + zero)**4)"
        gain = formula(text, gain=gain, s=its, around=around, here=here, zero=_KELVIN)
    (slopes,) = gradients(Programs((gain,)))
    g = formula("2*k/d", k=parts["k"], d=parts["d"])
    t = formula("t - zero", t=t, zero=_KELVIN)
    for _ in range(_NEWTON_STEPS_OF_FORMULAS if own else _NEWTON_STEPS_OF_CORRELATIONS):
        at = {here.name: t}
        t = formula(
            "t + (g*(mirror - t) + gain)/(g - slope)",
            t=t,
            g=g,
            mirror=parts["mirror"],
            gain=substitute(gain, at),
            slope=substitute(slopes[here.name], at),
        )
    return formula("2*t - mirror", t=t, mirror=parts["mirror"])


def _radiating(
    parts: dict[str, Node], terms: Sequence[tuple[Node, Node]]
) -> tuple[Node, Node, Node, Node]:
    """Where Newton's method begins [K], and B, g + h and s of the head of this file."""
    kelvin = formula("mirror + zero", mirror=parts["mirror"], zero=_KELVIN)
    air = formula("ambient + zero", ambient=parts["ambient"], zero=_KELVIN)
    g = formula("2*k/d", k=parts["k"], d=parts["d"])
    whole = formula("g + h", g=g, h=parts["h"])

    # T^4 differs from what it is far away by little where temperatures are close: the numbers are
    # all positive, so nothing cancels.
    b = formula("g*u + h*a", g=g, u=kelvin, h=parts["h"], a=air)
    s: Node = Constant(0.0)
    for number, (its, around) in enumerate(terms):
        a = formula("around + zero", around=around, zero=_KELVIN)
        b = formula("b + s*a**4", b=b, s=its, a=a)
        s = _sum(s, its) if number else its
    b = formula("b + q", b=b, q=parts["flux"])
    if not terms:
        return formula("b/w", b=b, w=whole), b, whole, s
    return formula("min(b/w, sqrt(sqrt(b/s)))", b=b, w=whole, s=s), b, whole, s


def _is_nothing(flux: Sequence[TimeFunction], h: TimeFunction) -> bool:
    return h.value == 0 and all(it.value == 0 for it in flux)


def _constant(courses: Sequence[TimeFunction]) -> bool:
    return all(course.value is not None for course in courses)


def _affine(a: object, b: object, courses: Sequence[TimeFunction]) -> Rule:
    """Ghosts a + b * mirror; functions of times become numbers if none of the courses changes."""
    values = [it(np.zeros(1))[0] if callable(it) and _constant(courses) else it for it in (a, b)]
    knots = knots_of(courses)
    return Rule(AFFINE, tuple(Parameter(*it, knots) for it in zip("ab", values, strict=True)))  # type: ignore[arg-type]


def _finished(tree: Node, parameters: list[Parameter], surface: Surface) -> Rule:
    """The rule of a tree, on the face: its points lie there, not where the mirror points do."""
    unique = {it.name: it for it in parameters}
    return Rule(Program(substitute(tree, surface.position)), tuple(unique.values()))


def join(rules: Sequence[Rule], patches: Ids | None, axis: int, n_ids: int) -> RuledFace:
    """One face out of the rules of its patches.

    Args:
        rules: by patch.
        patches: the patch of every point of the face, one point thick along its axis; None if there
            is one.
        axis: of the face.
        n_ids: number of ids.
    """
    if patches is None:
        return RuledFace(rules[0], lasting=_lasting(rules))

    def patch(box: Ranges) -> Ids:
        return patches[tuple(slice(*((0, 1) if k == axis else span)) for k, span in enumerate(box))]

    programs: list[Program] = []
    for rule in rules:
        if rule.program not in programs:
            programs.append(rule.program)
    parameters, tree = [], programs[-1].tree
    for number, program in reversed(list(enumerate(programs))):
        own = [rule if rule.program == program else None for rule in rules]
        names = dict.fromkeys(p.name for rule in own if rule is not None for p in rule.parameters)
        renamed = {name: name if len(programs) == 1 else f"{name}_{number}" for name in names}
        for name, new in renamed.items():
            parameters.append(_by_code(name, new, own, n_ids))
        part = substitute(program.tree, {old: Variable(new) for old, new in renamed.items()})
        tree = part if number == len(programs) - 1 else _choose(number, part, tree)

    if len(programs) > 1:
        kinds = [float(programs.index(rule.program)) for rule in rules]
        parameters.append(Parameter("kind", np.repeat(kinds, n_ids)))
    return RuledFace(
        Rule(Program(tree), tuple(parameters)), patch, len(rules), lasting=_lasting(rules)
    )


def _choose(number: int, part: Node, rest: Node) -> Node:
    is_it = Comparison(("==",), (Variable("kind"), Constant(float(number))))
    return Operation("where", (is_it, part, rest))


def _by_code(name: str, new: str, rules: Sequence[Rule | None], n_ids: int) -> Parameter:
    """A parameter of several patches, by patch * n_ids + id; 0 where a patch has none."""
    own = [
        None if rule is None else next((p for p in rule.parameters if p.name == name), None)
        for rule in rules
    ]

    def row(parameter: Parameter | None, times: Numbers) -> Numbers:
        if parameter is None:
            return np.zeros((len(times), n_ids))
        values = parameter.values(times) if callable(parameter.values) else parameter.values[None]
        return np.broadcast_to(values, (len(times), n_ids))

    def values(times: Numbers) -> Numbers:
        return np.concatenate([row(parameter, times) for parameter in own], axis=1)

    if not any(parameter is not None and parameter.changes for parameter in own):
        return Parameter(new, values(np.zeros(1))[0])
    knots = [it.knots for it in own if it is not None and it.knots is not None]
    return Parameter(new, values, np.unique(np.concatenate(knots)))


def _lasting(rules: Sequence[Rule]) -> tuple[float, float] | None:
    """(a, b) where ghosts a + b * mirror, filled once, stay right as long as nothing heats: those
    of an insulated face, and of one constant temperature.
    """
    pairs = set()
    for rule in rules:
        if rule.program != AFFINE or rule.changes:
            return None
        a, b = (np.asarray(parameter.values) for parameter in rule.parameters)
        pairs |= {(float(x), float(y)) for x, y in np.broadcast(a, b)}
    pair = pairs.pop()
    return pair if not pairs and (pair == (0.0, 1.0) or pair[1] == -1.0) else None


# What heats the points: the sources of a configuration as one rule by id.


@dataclass(frozen=True, eq=False)
class Heating:
    """One source with its numbers.

    Attributes:
        strength: its power [W] or its density [W/m^3].
        factor: over time.
        is_total: whether the strength is its power.
    """

    strength: TimeFunction
    factor: TimeFunction
    is_total: bool

    def at(self, times: Numbers) -> Numbers:
        """Its strength at some times, where it is the same everywhere."""
        return self.strength.at(times) * self.factor.at(times)

    @property
    def is_local(self) -> bool:
        """Whether it varies from point to point, with the place or the temperature there."""
        return self.strength.in_space or self.strength.by_temperature

    @property
    def changes(self) -> bool:
        """Whether it depends on time alone."""
        return self.strength.value is None or self.factor.value is None


def read_source(source: VolumeSource, key: str, signals: Sequence[Signal] = ()) -> Heating:
    """The numbers of a source, switched by signals.

    Raises:
        ConfigError: a table cannot be read.
    """
    factor = read_course(source.over_time, Varying(NUMBER, ("t",)), f"{key}.over_time")
    factor = factor.times(signals)
    if source.power is not None:
        return Heating(
            read_course(source.power, Varying(POWER, ("t",)), f"{key}.power"), factor, True
        )
    assert source.density is not None
    density = read_course(source.density, Varying(POWER_DENSITY, OF_SURFACE), f"{key}.density")
    return Heating(density, factor, False)


def make_source_rule(
    heatings: Mapping[int, Heating],
    sources_of_id: Sequence[Sequence[int]],
    extents: Mapping[int, tuple[float, float]],
    here: str = MIRROR,
    held: Numbers | float = 1.0,
) -> Rule:
    """The power per volume of every point [W/m^3].

    Args:
        heatings: by number of the source.
        sources_of_id: which of them heat the points of each id.
        extents: volume of what the cells of each source hold, and within its true surface [m^3].
        here: input that is the temperature of a point.
        held: by id, volume of what the cells hold per volume of the cells.
    """
    heats = {n: np.array([n in own for own in sources_of_id], np.float64) * held for n in heatings}
    for number, heating in heatings.items():
        cells, true = extents[number]
        if heating.is_total:
            heats[number] = heats[number] / cells
        elif true != cells:
            heats[number] = heats[number] * (true / cells)

    everywhere = [n for n, heating in heatings.items() if not heating.is_local]
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

    knots = knots_of(it for n in waving for it in (heatings[n].strength, heatings[n].factor))
    parameters = [Parameter("q", densities if waving else steady, knots)]
    tree: Node = Variable("q")
    for number, heating in heatings.items():
        if heating.is_local:
            tree, more = _add(tree, number, heating, heats[number])
            parameters += [it for it in more if it.name not in {p.name for p in parameters}]
    return Rule(Program(substitute(tree, {SURFACE: Variable(here)})), tuple(parameters))


def _add(tree: Node, number: int, heating: Heating, share: Numbers) -> tuple[Node, list[Parameter]]:
    """The sum with one more source, that differs from place to place."""
    name, factor = f"share_{number}", heating.factor
    values: Parameter
    if factor.value is not None:
        values = Parameter(name, share * factor.value)
    else:
        values = Parameter(name, lambda times: np.outer(factor.at(times), share), factor.knots)

    strength = heating.strength
    # Where it heats nothing the formula may be anything, even not finite.
    sum_ = formula(
        "tree + (share*strength if share != 0 else 0)",
        tree=tree,
        share=Variable(name),
        strength=strength.tree,
    )
    return sum_, [values, *([clock(strength.knots)] if "t" in strength.names else [])]
