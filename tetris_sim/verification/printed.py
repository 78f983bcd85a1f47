"""The systems of `verify --suite equations`, with right-hand sides written again in NumPy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tetris_sim.verification.equations import PosedSystem

# The systems. Numbers are those of the sources where the grid allows; initial states are smooth.

_WAVY = "cos(2*pi*x/Lx)*cos(2*pi*y/Ly)"
_VISUAL = "VisualPDE"
_PY = "py-pde"
_BOOKS = "textbooks"


def systems() -> tuple[PosedSystem, ...]:
    """All of them."""
    return (*_diffusing(), *_reacting(), *_interacting(), *_fourth_order(), *_waves(), *_odes())


def _diffusing() -> Iterator[PosedSystem]:
    # Walls, and nothing else.
    yield PosedSystem(
        "heat equation",
        f"{_VISUAL}, heat equation",
        {"T": "D*laplace(T)"},
        lambda g, _, u: (0.7 * g.laplace(u),),
        {"T": f"1 + {_WAVY}"},
        {"D": 0.7},
        faces="neumann",
    )

    # A source that varies in space, between faces that are held.
    yield PosedSystem(
        "inhomogeneous heat equation",
        f"{_VISUAL}, inhomogeneous heat equation",
        {"T": "D*laplace(T) + cos(2*pi*x/24)"},
        lambda g, p, u: (g.laplace(u) + np.cos(2 * np.pi * p[0] / 24),),
        {"T": _WAVY},
        {"D": 1},
        faces="dirichlet",
    )

    # A coefficient that falls by a factor of two hundred.
    yield PosedSystem(
        "heterogeneous diffusion",
        f"{_PY}, diffusion with spatial dependence",
        {"c": "div_grad(1.01 + tanh(x - 12), c)"},
        lambda g, p, c: (g.div_grad(1.01 + np.tanh(p[0] - 12), c),),
        {"c": "1 + 0.5*sin(2*pi*x/Lx)"},
        shape=(48,),
        spacing=0.5,
        faces="neumann",
        t_end=1.0,
    )

    # Central differences carry and diffusion damps.
    yield PosedSystem(
        "convection and diffusion",
        f"{_VISUAL}, convection-diffusion",
        {"u": "D*laplace(u) - v*dx(u)"},
        lambda g, _, u: (g.laplace(u) - 0.8 * g.d(u),),
        {"u": f"1 + {_WAVY}"},
        {"D": 1, "v": 0.8},
    )

    # The coefficient is the field itself.
    yield PosedSystem(
        "porous medium equation",
        f"{_BOOKS}, nonlinear diffusion",
        {"u": "laplace(u**m)"},
        lambda g, _, u: (g.laplace(u**2),),
        {"u": f"1 + 0.1*{_WAVY}"},
        {"m": 2},
        faces="neumann",
    )

    # An operator in the coefficient of another one.
    yield PosedSystem(
        "Perona-Malik",
        f"{_VISUAL}, image processing",
        {"u": "div_grad(exp(-D*grad_squared(u)), u)"},
        lambda g, _, u: (g.div_grad(np.exp(-0.5 * g.slope2(u)), u),),
        {"u": _WAVY},
        {"D": 0.5},
    )

    # Coefficients that grow with the square of the place.
    yield PosedSystem(
        "Black-Scholes",
        f"{_VISUAL}, Black-Scholes",
        {"V": "s**2/2*x**2*dxx(V) + r*x*dx(V) - r*V"},
        lambda g, p, v: (0.08 * p[0] ** 2 * g.dd(v) + 0.05 * p[0] * g.d(v) - 0.05 * v,),
        {"V": "10*exp(-(x/30 - 1)**2)"},
        {"s": 0.4, "r": 0.05},
        shape=(64,),
        faces="neumann",
        t_end=0.5,
        free="the coefficient is largest at one point, and no wave stays there",
    )

    # A coefficient inside of a derivative.
    yield PosedSystem(
        "Fokker-Planck",
        f"{_BOOKS}, drift and diffusion in a well",
        {"p": "dx((x - 12)*p) + D*dxx(p)"},
        lambda g, q, p: (g.d((q[0] - 12) * p) + 4 * g.dd(p),),
        {"p": "exp(-((x - 9)/3)**2)"},
        {"D": 4},
        shape=(48,),
        spacing=0.5,
        faces="dirichlet",
        t_end=0.5,
    )

    # Slopes grow where the surface is steep.
    yield PosedSystem(
        "Kardar-Parisi-Zhang",
        f"{_PY}, KPZ interface equation",
        {"h": "nu*laplace(h) + lam/2*grad_squared(h)"},
        lambda g, _, h: (0.5 * g.laplace(h) + 0.5 * g.slope2(h),),
        {"h": _WAVY},
        {"nu": 0.5, "lam": 1},
    )

    # Steepens to a front that diffusion holds.
    yield PosedSystem(
        "Burgers",
        f"{_VISUAL}, Burgers' equation",
        {"u": "nu*dxx(u) - u*dx(u)"},
        lambda g, _, u: (0.5 * g.dd(u) - u * g.d(u),),
        {"u": "0.3*sin(2*pi*x/Lx)"},
        {"nu": 0.5},
        shape=(64,),
    )


def _reacting() -> Iterator[PosedSystem]:
    # Unstable at 0, stable at 1, where it is faster.
    yield PosedSystem(
        "Fisher-KPP",
        f"{_VISUAL}, travelling waves",
        {"u": "D*laplace(u) + u*(1 - u)"},
        lambda g, _, u: (g.laplace(u) + u * (1 - u),),
        {"u": f"0.5 + 0.4*{_WAVY}"},
        {"D": 1},
    )

    # The same with a threshold between two stable states.
    yield PosedSystem(
        "bistable travelling wave",
        f"{_VISUAL}, bistable travelling waves",
        {"u": "D*laplace(u) + u*(u - a)*(1 - u)"},
        lambda g, _, u: (g.laplace(u) + u * (u - 0.4) * (1 - u),),
        {"u": f"0.5 + 0.5*{_WAVY}"},
        {"D": 1, "a": 0.4},
        faces="neumann",
    )

    # Grows from 0 to 1, where steps must be shorter.
    yield PosedSystem(
        "Allen-Cahn",
        f"{_PY}, Allen-Cahn",
        {"c": "gamma*laplace(c) - c**3 + c"},
        lambda g, _, c: (g.laplace(c) - c**3 + c,),
        {"c": f"0.8*{_WAVY}"},
        {"gamma": 1},
    )

    # Spikes, whose values are far from those of the beginning.
    yield PosedSystem(
        "Brusselator",
        f"{_PY}, Brusselator",
        {"u": "d0*laplace(u) + a - (b + 1)*u + v*u**2", "v": "d1*laplace(v) + b*u - v*u**2"},
        lambda g, _, u, v: (
            g.laplace(u) + 1 - 4 * u + v * u**2,
            0.1 * g.laplace(v) + 3 * u - v * u**2,
        ),
        {"u": "1", "v": f"3 + 0.1*{_WAVY}"},
        {"a": 1, "b": 3, "d0": 1, "d1": 0.1},
        scheme="rk4",
    )

    # A spot that divides.
    yield PosedSystem(
        "Gray-Scott",
        f"{_VISUAL}, Gray-Scott",
        {"u": "laplace(u) + u**2*v - (a + b)*u", "v": "D*laplace(v) - u**2*v + a*(1 - v)"},
        lambda g, _, u, v: (
            g.laplace(u) + u**2 * v - 0.097 * u,
            2 * g.laplace(v) - u**2 * v + 0.037 * (1 - v),
        ),
        {"u": "exp(-((x - 12)**2 + (y - 12)**2)/9)", "v": "1"},
        {"a": 0.037, "b": 0.06, "D": 2},
    )

    # Two diffusivities that differ by ten; patterns grow slowly.
    yield PosedSystem(
        "Schnakenberg",
        f"{_VISUAL}, Schnakenberg",
        {"u": "laplace(u) + a - u + u**2*v", "v": "D*laplace(v) + b - u**2*v"},
        lambda g, _, u, v: (
            g.laplace(u) + 0.01 - u + u**2 * v,
            10 * g.laplace(v) + 1 - u**2 * v,
        ),
        {"u": f"1.01 + 0.05*{_WAVY}", "v": "0.98"},
        {"a": 0.01, "b": 1, "D": 10},
        t_end=1.0,
    )

    # A field in the denominator.
    yield PosedSystem(
        "Gierer-Meinhardt",
        f"{_VISUAL}, Gierer-Meinhardt",
        {"u": "laplace(u) + a + u**2/v - b*u", "v": "D*laplace(v) + u**2 - c*v"},
        lambda g, _, u, v: (
            g.laplace(u) + 0.5 + u**2 / v - u,
            10 * g.laplace(v) + u**2 - 6.1 * v,
        ),
        {"u": f"6.6*(1 + 0.02*{_WAVY})", "v": "7.14"},
        {"a": 0.5, "b": 1, "c": 6.1, "D": 10},
        t_end=0.5,
    )

    # Excitable, with a slow field that diffuses fast.
    yield PosedSystem(
        "FitzHugh-Nagumo",
        f"{_VISUAL}, FitzHugh-Nagumo",
        {"u": "laplace(u) + u - u**3 - v", "v": "D*laplace(v) + q*(u - a*v - b)"},
        lambda g, _, u, v: (
            g.laplace(u) + u - u**3 - v,
            10 * g.laplace(v) + 0.5 * (u - v + 0.1),
        ),
        {"u": f"0.5*{_WAVY}", "v": "0"},
        {"D": 10, "q": 0.5, "a": 1, "b": -0.1},
        t_end=1.0,
    )

    # An exponential of a quotient, until the fuel is used up.
    yield PosedSystem(
        "thermal runaway",
        f"{_BOOKS}, reaction with heat",
        {"T": "laplace(T) + c*exp(T/(1 + T/20))", "c": "D*laplace(c) - c*exp(T/(1 + T/20))/5"},
        lambda g, _, u, c: (
            g.laplace(u) + c * np.exp(u / (1 + u / 20)),
            0.5 * g.laplace(c) - c * np.exp(u / (1 + u / 20)) / 5,
        ),
        {"T": f"0.2 + 0.1*{_WAVY}", "c": "0.3"},
        {"D": 0.5},
        faces="neumann",
        t_end=1.0,
    )


def _interacting() -> Iterator[PosedSystem]:
    # Swings around a state of rest without damping.
    yield PosedSystem(
        "Lotka-Volterra with diffusion",
        f"{_BOOKS}, predator and prey",
        {"u": "D*laplace(u) + u*(a - b*v)", "v": "laplace(v) + v*(b*u - c)"},
        lambda g, _, u, v: (0.5 * g.laplace(u) + u * (1 - v), g.laplace(v) + v * (u - 0.5)),
        {"u": f"0.6 + 0.2*{_WAVY}", "v": "0.9"},
        {"a": 1, "b": 1, "c": 0.5, "D": 0.5},
        scheme="rk4",
    )

    # Three species, each nearly alone in turn.
    yield PosedSystem(
        "cyclic competition",
        f"{_VISUAL}, cyclic competition",
        {
            "u": "D*laplace(u) + u*(1 - u - a*v - b*w)",
            "v": "D*laplace(v) + v*(1 - b*u - v - a*w)",
            "w": "D*laplace(w) + w*(1 - a*u - b*v - w)",
        },
        lambda g, _, u, v, w: (
            0.5 * g.laplace(u) + u * (1 - u - 0.6 * v - 1.5 * w),
            0.5 * g.laplace(v) + v * (1 - 1.5 * u - v - 0.6 * w),
            0.5 * g.laplace(w) + w * (1 - 0.6 * u - 1.5 * v - w),
        ),
        {"u": f"0.5 + 0.3*{_WAVY}", "v": "0.3 + 0.2*sin(2*pi*x/Lx)", "w": "0.4"},
        {"a": 0.6, "b": 1.5, "D": 0.5},
        scheme="rk4",
        free="two species die out, and what limits the step with them",
    )

    # An epidemic: fast growth, then decay.
    yield PosedSystem(
        "SIR with diffusion",
        f"{_PY}, SIR model",
        {
            "s": "D*laplace(s) - beta*i*s",
            "i": "D*laplace(i) + beta*i*s - gamma*i",
            "r": "D*laplace(r) + gamma*i",
        },
        lambda g, _, s, i, r: (
            0.3 * g.laplace(s) - 2 * i * s,
            0.3 * g.laplace(i) + 2 * i * s - 0.9 * i,
            0.3 * g.laplace(r) + 0.9 * i,
        ),
        {"s": f"0.9 - 0.05*{_WAVY}", "i": f"0.1 + 0.05*{_WAVY}", "r": "0"},
        {"beta": 2, "gamma": 0.9, "D": 0.3},
        faces="neumann",
    )

    # Divergence of one field's gradient times another.
    yield PosedSystem(
        "Keller-Segel",
        f"{_VISUAL}, Keller-Segel",
        {
            "u": "laplace(u) - div_grad(chi*u, v) + u*(1 - u)",
            "v": "D*laplace(v) + u - a*v",
        },
        lambda g, _, u, v: (
            g.laplace(u) - g.div_grad(2 * u, v) + u * (1 - u),
            g.laplace(v) + u - v,
        ),
        {"u": f"1 + 0.1*{_WAVY}", "v": "1"},
        {"chi": 2, "D": 1, "a": 1},
    )

    # Downhill transport with a reaction.
    yield PosedSystem(
        "vegetation on a slope (Klausmeier)",
        f"{_VISUAL}, vegetation",
        {"w": "a - w - w*n**2 + v*dx(w) + laplace(w)", "n": "w*n**2 - m*n + 0.5*laplace(n)"},
        lambda g, _, w, n: (
            1.1 - w - w * n**2 + 1.5 * g.d(w) + g.laplace(w),
            w * n**2 - 0.45 * n + 0.5 * g.laplace(n),
        ),
        {"w": "0.5", "n": f"1 + 0.1*{_WAVY}"},
        {"a": 1.1, "m": 0.45, "v": 1.5},
    )

    # Patterns that oscillate: complex growth.
    yield PosedSystem(
        "Turing waves of three species",
        f"{_VISUAL}, Turing-wave bifurcations",
        {
            "u": "D*laplace(u) + a*u - v - w - u**3",
            "v": "laplace(v) + u - v",
            "w": "5*laplace(w) + 2*(u - w)",
        },
        lambda g, _, u, v, w: (
            0.2 * g.laplace(u) + 1.2 * u - v - w - u**3,
            g.laplace(v) + u - v,
            5 * g.laplace(w) + 2 * (u - w),
        ),
        {"u": f"0.3*{_WAVY}", "v": "0", "w": "0"},
        {"D": 0.2, "a": 1.2},
        t_end=1.0,
    )


def _fourth_order() -> Iterator[PosedSystem]:
    # Fourth order, of a formula with operators.
    yield PosedSystem(
        "Cahn-Hilliard",
        f"{_PY}, Cahn-Hilliard",
        {"c": "laplace(c**3 - c - laplace(c))"},
        lambda g, _, c: (g.laplace(c**3 - c - g.laplace(c)),),
        {"c": f"0.5*{_WAVY}"},
        free="both phases are limited by their middles, which are small here",
    )
    # Chaos in space and time at an amplitude that settles.
    yield PosedSystem(
        "Kuramoto-Sivashinsky",
        f"{_PY}, Kuramoto-Sivashinsky",
        {"u": "-laplace(laplace(u)) - laplace(u) - grad_squared(u)/2"},
        lambda g, _, u: (-g.laplace(g.laplace(u)) - g.laplace(u) - g.slope2(u) / 2,),
        {"u": _WAVY},
    )
    # Fourth order with a band of waves that grow.
    yield PosedSystem(
        "Swift-Hohenberg",
        f"{_VISUAL}, Swift-Hohenberg",
        {"u": "(r - 1)*u - 2*laplace(u) - laplace(laplace(u)) + a*u**2 - u**3"},
        lambda g, _, u: (-0.9 * u - 2 * g.laplace(u) - g.laplace(g.laplace(u)) + u**2 - u**3,),
        {"u": f"0.3*{_WAVY}"},
        {"r": 0.1, "a": 1},
    )
    # Sixth order.
    yield PosedSystem(
        "phase-field crystal",
        f"{_BOOKS}, phase-field crystals",
        {"p": "laplace((1 + q)*p + 2*laplace(p) + laplace(laplace(p)) + p**3)"},
        lambda g, _, p: (g.laplace(0.8 * p + 2 * g.laplace(p) + g.laplace(g.laplace(p)) + p**3),),
        {"p": f"-0.2 + 0.2*{_WAVY}"},
        {"q": -0.2},
    )
    # Fourth order with the cube of the field before it.
    yield PosedSystem(
        "thin film",
        f"{_BOOKS}, thin films",
        {"h": "-div_grad(h**3, laplace(h))"},
        lambda g, _, h: (-g.div_grad(h**3, g.laplace(h)),),
        {"h": f"1 + 0.3*{_WAVY}"},
        free="the coefficient is largest at one point, and no wave stays there",
    )
    # Second order in time, fourth in space.
    yield PosedSystem(
        "beam",
        f"{_VISUAL}, beams",
        {"w": "-D*dxx(dxx(w))"},
        lambda g, _, w, v: (v, -0.5 * g.dd(g.dd(w))),
        {"w": "sin(2*pi*x/Lx)"},
        {"D": 0.5},
        shape=(32,),
        scheme="leapfrog",
        second=("w",),
    )

    # The same in two dimensions, with a velocity in the equation.
    yield PosedSystem(
        "damped plate",
        f"{_VISUAL}, plate equation",
        {"w": "-D*laplace(laplace(w)) - c*w_velocity"},
        lambda g, _, w, v: (v, -0.5 * g.laplace(g.laplace(w)) - 0.1 * v),
        {"w": _WAVY},
        {"D": 0.5, "c": 0.1},
        scheme="rk4",
        second=("w",),
    )


def _waves() -> Iterator[PosedSystem]:
    # Third derivatives: swings without damping, so euler has no stable step.
    yield PosedSystem(
        "Korteweg-de Vries",
        f"{_VISUAL}, Korteweg-de Vries",
        {"u": "6*u*dx(u) - dx(dxx(u))"},
        lambda g, _, u: (6 * u * g.d(u) - g.d(g.dd(u)),),
        {"u": "-0.125/cosh((x - 30)/4)**2"},
        shape=(64,),
        scheme="rk4",
    )
    # The leapfrog scheme's own.
    yield PosedSystem(
        "wave equation",
        f"{_VISUAL}, wave equation",
        {"u": "D*laplace(u)"},
        lambda g, _, u, v: (v, 1.5 * g.laplace(u)),
        {"u": _WAVY},
        {"D": 1.5},
        faces="neumann",
        scheme="leapfrog",
        second=("u",),
    )
    # A wave with friction.
    yield PosedSystem(
        "telegraph equation",
        f"{_VISUAL}, damped waves",
        {"u": "D*laplace(u) - C*u_velocity - k*u"},
        lambda g, _, u, v: (v, 1.5 * g.laplace(u) - 0.2 * v - 0.1 * u),
        {"u": _WAVY},
        {"D": 1.5, "C": 0.2, "k": 0.1},
        scheme="rk4",
        second=("u",),
    )
    # A nonlinear force.
    yield PosedSystem(
        "sine-Gordon",
        f"{_BOOKS}, field theory",
        {"u": "laplace(u) - sin(u)"},
        lambda g, _, u, v: (v, g.laplace(u) - np.sin(u)),
        {"u": _WAVY},
        scheme="leapfrog",
        second=("u",),
    )
    # Two real fields that exchange what they have.
    yield PosedSystem(
        "Schroedinger's equation as a real pair",
        f"{_VISUAL}, Schroedinger",
        {"u": "-D*laplace(v)", "v": "D*laplace(u)"},
        lambda g, _, u, v: (-0.5 * g.laplace(v), 0.5 * g.laplace(u)),
        {"u": _WAVY, "v": "sin(2*pi*x/Lx)"},
        {"D": 0.5},
        scheme="rk4",
    )
    # A soliton: focusing against dispersion.
    yield PosedSystem(
        "nonlinear Schroedinger equation",
        f"{_VISUAL}, nonlinear Schroedinger",
        {"u": "-dxx(v) - k*v*(u**2 + v**2)", "v": "dxx(u) + k*u*(u**2 + v**2)"},
        lambda g, _, u, v: (
            -g.dd(v) - v * (u**2 + v**2),
            g.dd(u) + u * (u**2 + v**2),
        ),
        {"u": "1/cosh((x - 20)/2)", "v": "0"},
        {"k": 1},
        shape=(64,),
        scheme="rk4",
        free="the peak that limits the step breathes",
    )
    # Waves that saturate, cross terms in the operators.
    yield PosedSystem(
        "complex Ginzburg-Landau",
        f"{_VISUAL}, complex Ginzburg-Landau",
        {
            "u": "laplace(u) - b*laplace(v) + u - (u - c*v)*(u**2 + v**2)",
            "v": "b*laplace(u) + laplace(v) + v - (c*u + v)*(u**2 + v**2)",
        },
        lambda g, _, u, v: (
            g.laplace(u) - 0.5 * g.laplace(v) + u - (u + v) * (u**2 + v**2),
            0.5 * g.laplace(u) + g.laplace(v) + v - (v - u) * (u**2 + v**2),
        ),
        {"u": f"0.7*{_WAVY}", "v": "0.5*sin(2*pi*x/Lx)"},
        {"b": 0.5, "c": -1},
    )

    # Three fields, products with derivatives, both axes.
    yield PosedSystem(
        "shallow water",
        f"{_VISUAL}, shallow water",
        {
            "h": "-(H + h)*(dx(u) + dy(v)) - u*dx(h) - v*dy(h) + nu*laplace(h)",
            "u": "nu*laplace(u) - g*dx(h) - k*u - u*dx(u) - v*dy(u) + f*v",
            "v": "nu*laplace(v) - g*dy(h) - k*v - u*dx(v) - v*dy(v) - f*u",
        },
        lambda d, _, h, u, v: (
            -(1 + h) * (d.d(u) + d.d(v, 1)) - u * d.d(h) - v * d.d(h, 1) + 0.05 * d.laplace(h),
            0.05 * d.laplace(u) - d.d(h) - 0.001 * u - u * d.d(u) - v * d.d(u, 1) + 0.01 * v,
            0.05 * d.laplace(v) - d.d(h, 1) - 0.001 * v - u * d.d(v) - v * d.d(v, 1) - 0.01 * u,
        ),
        {"h": f"0.05*{_WAVY}", "u": "0", "v": "0"},
        {"H": 1, "g": 1, "k": 0.001, "f": 0.01, "nu": 0.05},
        scheme="rk4",
    )


def _odes() -> Iterator[PosedSystem]:
    # Chaos of each point.
    yield PosedSystem(
        "Lorenz at every point",
        f"{_BOOKS}, chaos",
        {
            "a": "s*(b - a) + D*laplace(a)",
            "b": "a*(r - c) - b + D*laplace(b)",
            "c": "a*b - k*c + D*laplace(c)",
        },
        lambda g, _, a, b, c: (
            10 * (b - a) + 0.5 * g.laplace(a),
            a * (28 - c) - b + 0.5 * g.laplace(b),
            a * b - 8 / 3 * c + 0.5 * g.laplace(c),
        ),
        {"a": f"1 + 0.1*{_WAVY}", "b": "1", "c": "20"},
        {"s": 10, "r": 28, "k": 8 / 3, "D": 0.5},
        scheme="rk4",
        t_end=0.5,
        free="longer steps end at a state of rest, which is none",
    )

    # Chaos with sines, hardly damped.
    yield PosedSystem(
        "Thomas",
        f"{_VISUAL}, Thomas",
        {
            "u": "D*laplace(u) + sin(v) - b*u",
            "v": "D*laplace(v) + sin(w) - b*v",
            "w": "D*laplace(w) + sin(u) - b*w",
        },
        lambda g, _, u, v, w: (
            0.5 * g.laplace(u) + np.sin(v) - 0.2 * u,
            0.5 * g.laplace(v) + np.sin(w) - 0.2 * v,
            0.5 * g.laplace(w) + np.sin(u) - 0.2 * w,
        ),
        {"u": f"1 + 0.1*{_WAVY}", "v": "0", "w": "0.5"},
        {"b": 0.2, "D": 0.5},
        scheme="rk4",
    )

    # Relaxation: the limit cycle is far from the state of the beginning.
    yield PosedSystem(
        "van der Pol",
        f"{_VISUAL}, van der Pol",
        {"u": "D*laplace(u) + v", "v": "D*laplace(v) + mu*(1 - u**2)*v - u"},
        lambda g, _, u, v: (0.1 * g.laplace(u) + v, 0.1 * g.laplace(v) + 3 * (1 - u**2) * v - u),
        {"u": f"1 + 0.1*{_WAVY}", "v": "0"},
        {"mu": 3, "D": 0.1},
        scheme="rk4",
    )

    # Two wells, with little friction.
    yield PosedSystem(
        "Duffing",
        f"{_VISUAL}, Duffing",
        {"u": "v", "v": "D*laplace(v) - d*v - a*u - b*u**3"},
        lambda g, _, u, v: (v, 0.1 * g.laplace(v) - 0.1 * v + u - 0.25 * u**3),
        {"u": f"1 + 0.1*{_WAVY}", "v": "0"},
        {"d": 0.1, "a": -1, "b": 0.25, "D": 0.1},
        scheme="rk4",
    )
