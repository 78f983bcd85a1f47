"""Advection: first derivatives, and time steps that move a field by a fraction of a point.

Time steps are written for a flow in the positive direction, so upwind is towards lower indices.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tetris_sim.model.stencils.entry import (
    NamedStencil,
    Number,
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
