"""Lattice Boltzmann: velocity sets as stencils.

With relaxation time 1 every population is replaced by its equilibrium, so streaming is u_new(x) =
sum of w_i u(x - c_i), with weights w_i that may depend on a velocity: diffusion of variance c_s^2
per step. Each set is judged by the degree up to which it is a Gauss-Hermite quadrature, which makes
the moments of a fluid right.
"""

from __future__ import annotations

import itertools
from fractions import Fraction

from tetris_sim.model.stencil import Offset
from tetris_sim.model.stencils.entry import NamedStencil, Weights, named, outer, row, transport

DOMAIN = "lattice Boltzmann"

_QIAN = "Y. H. Qian, D. d'Humières, P. Lallemand, Europhys. Lett. 17 (1992) 479"
_HUMIERES = "D. d'Humières, M. Bouzidi, P. Lallemand, Phys. Rev. E 63 (2001) 066702"
_KRUEGER = "T. Krüger et al., The Lattice Boltzmann Method (2017), chapters 3 and 8"
_SHAN = "X. Shan, X.-F. Yuan, H. Chen, J. Fluid Mech. 550 (2006) 413"
_THIRD = Fraction(1, 3)

# name: (weights by one velocity of each class, c_s^2, degree, source). All permutations and signs
# of that velocity have the same weight.
_SETS: dict[str, tuple[dict[Offset, Fraction], Fraction, int, str]] = {
    "d1q3": ({(0,): Fraction(2, 3), (1,): Fraction(1, 6)}, _THIRD, 5, _QIAN),
    "d1q5": (
        {(0,): Fraction(1, 2), (1,): Fraction(1, 6), (2,): Fraction(1, 12)},
        Fraction(1),
        5,
        f"{_KRUEGER}: moment equations",
    ),
    "d2q5": ({(0, 0): _THIRD, (1, 0): Fraction(1, 6)}, _THIRD, 3, _KRUEGER),
    "d2q9": (
        {(0, 0): Fraction(4, 9), (1, 0): Fraction(1, 9), (1, 1): Fraction(1, 36)},
        _THIRD,
        5,
        _QIAN,
    ),
    "d2q21": (
        {
            (0, 0): Fraction(91, 324),
            (1, 0): Fraction(1, 12),
            (1, 1): Fraction(2, 27),
            (2, 0): Fraction(7, 360),
            (2, 2): Fraction(1, 432),
            (3, 0): Fraction(1, 1620),
        },
        Fraction(2, 3),
        7,
        _SHAN,
    ),
    "d3q7": ({(0, 0, 0): Fraction(1, 4), (1, 0, 0): Fraction(1, 8)}, Fraction(1, 4), 3, _KRUEGER),
    "d3q13": ({(0, 0, 0): Fraction(1, 2), (1, 1, 0): Fraction(1, 24)}, _THIRD, 3, _HUMIERES),
    "d3q15": (
        {(0, 0, 0): Fraction(2, 9), (1, 0, 0): Fraction(1, 9), (1, 1, 1): Fraction(1, 72)},
        _THIRD,
        5,
        _QIAN,
    ),
    "d3q19": (
        {(0, 0, 0): _THIRD, (1, 0, 0): Fraction(1, 18), (1, 1, 0): Fraction(1, 36)},
        _THIRD,
        5,
        _QIAN,
    ),
    "d3q27": (
        {
            (0, 0, 0): Fraction(8, 27),
            (1, 0, 0): Fraction(2, 27),
            (1, 1, 0): Fraction(1, 54),
            (1, 1, 1): Fraction(1, 216),
        },
        _THIRD,
        5,
        _QIAN,
    ),
    "d3q39": (
        {
            (0, 0, 0): Fraction(1, 12),
            (1, 0, 0): Fraction(1, 12),
            (1, 1, 1): Fraction(1, 27),
            (2, 0, 0): Fraction(2, 135),
            (2, 2, 0): Fraction(1, 432),
            (3, 0, 0): Fraction(1, 1620),
        },
        Fraction(2, 3),
        7,
        _SHAN,
    ),
}


def entries() -> tuple[NamedStencil, ...]:
    """Return the stencils of this domain."""
    return (*_at_rest(), _product(), *_moving())


def velocity_set(name: str) -> tuple[Weights, Fraction]:
    """Return (weights by velocity, c_s^2) of a set such as "d2q9"."""
    classes, sound, _, _ = _SETS[name]

    # Every class is an orbit under permutations and reflections; a dict removes duplicates.
    weights: dict[Offset, Fraction] = {}
    for one, weight in classes.items():
        for order in itertools.permutations(one):
            for signs in itertools.product((-1, 1), repeat=len(one)):
                weights[tuple(s * c for s, c in zip(signs, order, strict=True))] = weight
    return weights, sound


def _at_rest() -> tuple[NamedStencil, ...]:
    # At rest the weights are even, so u(x - c) and u(x + c) give the same stencil.
    stencils = []
    for name, (classes, sound, degree, source) in _SETS.items():
        ndim = len(next(iter(classes)))
        expansion = transport((0,) * ndim, degree, diffusion=sound)
        texts = (f"streaming of {name.upper()} at rest, c_s^2 = {sound}", source)
        stencils.append(named(f"{name}-{ndim}d", velocity_set(name)[0], expansion, texts))
    return tuple(stencils)


def _product() -> NamedStencil:
    weights = outer(*[row(*(Fraction(w, 12) for w in (1, 2, 6, 2, 1)))] * 2)
    about = "streaming of D2Q25, the product of two D1Q5, at rest, c_s^2 = 1"
    return named("d2q25-2d", weights, transport((0, 0), 5, diffusion=1), (about, _KRUEGER))


def _moving() -> tuple[NamedStencil, ...]:
    # Velocities in array order, all components different: no two axes can be confused.
    stencils = []
    for name, velocity in (
        ("d1q3", (Fraction(1, 5),)),
        ("d2q9", (Fraction(1, 20), Fraction(1, 10))),
        ("d3q19", (Fraction(1, 40), Fraction(1, 20), Fraction(1, 10))),
    ):
        weights, sound = velocity_set(name)
        speed = sum(v * v for v in velocity)

        moved: dict[Offset, Fraction] = {}
        for direction, weight in weights.items():
            # Equilibrium to second order in the velocity, 1 + c.v / c_s^2 + (c.v)^2 / (2 c_s^4) -
            # v^2 / (2 c_s^2).
            along = (
                sum((c * v for c, v in zip(direction, velocity, strict=True)), Fraction(0)) / sound
            )
            # A population that moves by c was at x - c before.
            moved[tuple(-c for c in direction)] = weight * (
                1 + along + along**2 / 2 - speed / sound / 2
            )

        told = ", ".join(map(str, velocity[::-1]))
        texts = (f"streaming of {name.upper()} with a flow of {told}, c_s^2 = {sound}", _KRUEGER)
        expansion = transport(velocity, 2, diffusion=sound)
        stencils.append(
            named(f"{name}-flow-{len(velocity)}d", moved, expansion, texts, symmetry="none")
        )

    return tuple(stencils)
