"""Advection and lattice Boltzmann methods: first derivatives, and time steps that move a field by a
fraction of a point.

Time steps are written for a flow in the positive direction, so upwind is towards lower indices.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from tetris_sim.model.stencil import Offset
from tetris_sim.model.stencils.entry import (
    NamedStencil,
    Number,
    Weights,
    add,
    along,
    central,
    derivatives,
    fornberg,
    identity,
    named,
    outer,
    polynomial,
    row,
    scaled,
    transport,
)

DOMAIN = "advection"

_FORNBERG = "B. Fornberg, Math. Comp. 51 (1988) 699, recurrence"
_LEVEQUE = (
    "R. J. LeVeque, Finite Difference Methods for Ordinary and Partial Differential Equations "
    "(2007), chapter 10"
)
_STANIFORTH = (
    "A. Staniforth, J. Côté, Mon. Weather Rev. 119 (1991) 2206: semi-Lagrangian interpolation"
)
# Courant number along x; along y and z it is smaller, so that no two axes can be exchanged.
_NU = Fraction(2, 5)
_VELOCITIES: dict[int, tuple[Fraction, ...]] = {
    1: (_NU,),
    2: (Fraction(3, 10), _NU),
    3: (Fraction(1, 5), Fraction(3, 10), _NU),
}


def entries() -> tuple[NamedStencil, ...]:
    """Return the stencils of this domain."""
    return (*_gradients(), *_interpolating(), *_steps_1d(), *_donor_cells())


def _gradients() -> tuple[NamedStencil, ...]:
    stencils = [
        named(
            f"gradient-1d-order{order}",
            central(1, order),
            derivatives({(1,): 1}, order),
            (f"central first derivative of order {order}", _FORNBERG),
            symmetry="odd",
            factor=1 if order == 2 else None,
        )
        for order in (2, 4, 6, 8)
    ]

    # One more node upwind than downwind: from -(order + 1)/2 to (order - 1)/2.
    for order in (1, 3, 5):
        nodes = range(-(order + 1) // 2, (order + 1) // 2)
        stencils.append(
            named(
                f"upwind-gradient-1d-order{order}",
                fornberg(1, nodes),
                derivatives({(1,): 1}, order),
                (
                    f"first derivative of order {order}, one more point upwind than downwind",
                    _FORNBERG,
                ),
                symmetry="none",
                factor=None,
            )
        )

    return tuple(stencils)


def _interpolating() -> tuple[NamedStencil, ...]:
    """Interpolating schemes: the polynomial through some nodes, evaluated at the departure point of
    the flow; exact to the polynomial's degree.
    """
    listed = (
        ("upwind-1d", 1, (-1, 0), "donor cell", _LEVEQUE),
        ("lax-wendroff-1d", 1, (-1, 0, 1), "Lax-Wendroff", _LEVEQUE),
        ("beam-warming-1d", 1, (-2, -1, 0), "Beam-Warming: second order upwind", _LEVEQUE),
        (
            "quickest-1d",
            1,
            (-2, -1, 0, 1),
            "QUICKEST: third order upwind",
            "B. P. Leonard, Comput. Methods Appl. Mech. Eng. 19 (1979) 59",
        ),
        ("upwind-1d-order5", 1, range(-3, 3), "fifth order upwind", _STANIFORTH),
        ("upwind-1d-order7", 1, range(-4, 4), "seventh order upwind", _STANIFORTH),
        (
            "corner-transport-2d",
            2,
            (-1, 0),
            "corner transport upwind: bilinear",
            "P. Colella, J. Comput. Phys. 87 (1990) 171",
        ),
        ("lax-wendroff-2d9p", 2, (-1, 0, 1), "Lax-Wendroff along every axis in turn", _LEVEQUE),
        ("semi-lagrangian-2d16p", 2, (-2, -1, 0, 1), "semi-Lagrangian, cubic", _STANIFORTH),
        ("semi-lagrangian-2d36p", 2, range(-3, 3), "semi-Lagrangian, quintic", _STANIFORTH),
        (
            "corner-transport-3d",
            3,
            (-1, 0),
            "corner transport upwind: trilinear",
            "P. Colella, J. Comput. Phys. 87 (1990) 171",
        ),
        ("semi-lagrangian-3d64p", 3, (-2, -1, 0, 1), "semi-Lagrangian, cubic", _STANIFORTH),
    )

    stencils = []
    for name, ndim, nodes, what, source in listed:
        # In one time step the flow arrives from -v, v being the Courant number along each axis.
        velocity = _VELOCITIES[ndim]
        weights = outer(*(fornberg(0, tuple(nodes), at=-v) for v in velocity))
        texts = (f"{what}; {_courant(velocity)}", source)
        stencils.append(
            named(name, weights, transport(velocity, len(nodes) - 1), texts, symmetry="none")
        )

    return tuple(stencils)


def _steps_1d() -> tuple[NamedStencil, ...]:
    (nu,) = _VELOCITIES[1]

    # Lax-Friedrichs replaces the centre of the centred scheme by the mean of its neighbours.
    lax = row((1 + nu) / 2, 0, (1 - nu) / 2)
    wendroff, beam = fornberg(0, (-1, 0, 1), at=-nu), fornberg(0, (-2, -1, 0), at=-nu)
    kutta = "W. Kutta, Z. Math. Phys. 46 (1901) 435, on central differences"

    def runge_kutta(stages: int, order: int) -> NamedStencil:
        # For u' = A u with A = -D, s stages of a Runge-Kutta method of order s apply the Taylor
        # polynomial of exp(A) of degree s.
        weights = polynomial(
            scaled(-1, central(1, order)),
            [Fraction(1, math.factorial(k)) for k in range(stages + 1)],
        )
        what = (
            f"{stages} Runge-Kutta stages on central differences of order {order} at once; Courant "
            "number 1"
        )
        name = f"central-1d-rk{stages}"
        return named(name, weights, transport((1,), order), (what, kutta), symmetry="none")

    return (
        named(
            "lax-friedrichs-1d",
            lax,
            transport((nu,), 1),
            (f"Lax-Friedrichs; {_courant((nu,))}", _LEVEQUE),
            symmetry="none",
        ),
        named(
            "fromm-1d",
            scaled(Fraction(1, 2), add(wendroff, beam)),
            transport((nu,), 2),
            (
                f"Fromm: mean of Lax-Wendroff and Beam-Warming; Courant number {nu}",
                "J. E. Fromm, J. Comput. Phys. 3 (1968) 176",
            ),
            symmetry="none",
        ),
        runge_kutta(3, 2),
        runge_kutta(4, 4),
    )


def _donor_cells() -> tuple[NamedStencil, ...]:
    stencils = []
    for ndim in (2, 3):
        velocity = _VELOCITIES[ndim]
        upwind = fornberg(1, (-1, 0))
        # All fluxes act on the old state at once, without the corner terms of
        # `corner-transport-2d`.
        parts = [scaled(-v, along(upwind, axis, ndim)) for axis, v in enumerate(velocity)]
        texts = (f"donor cell, all axes at once; {_courant(velocity)}", _LEVEQUE)
        weights = add(identity(ndim), *parts)
        stencils.append(
            named(f"upwind-{ndim}d", weights, transport(velocity, 1), texts, symmetry="none")
        )

    return tuple(stencils)


def _courant(velocity: tuple[Number, ...]) -> str:
    # Courant numbers are stored in array order, and printed x first.
    numbers = ", ".join(map(str, velocity[::-1]))
    return f"Courant number {numbers}" if len(velocity) == 1 else f"Courant numbers {numbers}"


# Lattice Boltzmann: velocity sets as stencils.
#
# With relaxation time 1 every population is replaced by its equilibrium, so streaming is u_new(x) =
# sum of w_i u(x - c_i), with weights w_i that may depend on a velocity: diffusion of variance c_s^2
# per step. Each set is judged by the degree up to which it is a Gauss-Hermite quadrature, which
# makes the moments of a fluid right.
LATTICE_BOLTZMANN = "lattice Boltzmann"

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


def lattice_boltzmann() -> tuple[NamedStencil, ...]:
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
