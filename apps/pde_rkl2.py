"""RKL2: a step of many stages, each of which costs one evaluation, far longer than they together.

The second-order Runge-Kutta-Legendre method of C. D. Meyer, D. S. Balsara, T. D. Aslam, J. Comput.
Phys. 257 (2014) 594: with s stages it is stable on the negative axis up to (s^2 + s - 2)/2, where
euler is up to 2. With f the right-hand side, h the step and w = 4/(s^2 + s - 2),

    y_1 = u + b_1 w h f(u, t)
    y_j = m_j y_(j-1) + n_j y_(j-2) + (1 - m_j - n_j) u + m_j w h (f(y_(j-1)) - a_(j-1) f(u, t))
    b_j = (j^2 + j - 2)/(2 j (j + 1)), b_0 = b_1 = b_2 = 1/3, a_j = 1 - b_j
    m_j = (2j - 1)/j b_j/b_(j-1),  n_j = -(j - 1)/j b_j/b_(j-2)

and y_s the new state. y_j is the state at t + h (j^2 + j - 2)/(s^2 + s - 2), y_1 at t + b_1 w h.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.pde_hoist import DT, ONE, times
from tetris_sim.apps.pde_schemes import Made, System, discretised, extended
from tetris_sim.apps.pde_sums import Term, combine, scaled
from tetris_sim.model.equations import tap
from tetris_sim.model.formula import Constant, Node

MOST_STAGES = 16  # with more, data with edges overshoot


def _b(j: int) -> float:
    return (j * j + j - 2) / (2 * j * (j + 1)) if j > 1 else 1 / 3


def _weights(j: int) -> tuple[float, float]:
    """M_j and n_j."""
    return (2 * j - 1) / j * _b(j) / _b(j - 1), -(j - 1) / j * _b(j) / _b(j - 2)


def stretched(stages: int) -> float:
    """How many steps of euler on the negative axis a step is as long as.

    >>> stretched(3), stretched(16)
    (2.5, 67.5)
    """
    return (stages * stages + stages - 2) / 4


def rkl2_factor(z: npt.NDArray[Any], stages: int) -> npt.NDArray[Any]:
    """By what it multiplies a wave in a step."""
    w = 1 / stretched(stages)
    before, now = np.ones_like(z), 1 + _b(1) * w * z
    for j in range(2, stages + 1):
        m, n = _weights(j)
        new = m * now + n * before + (1 - m - n) + m * w * z * (now - (1 - _b(j - 1)))
        before, now = now, new
    return now


def make_rkl2(system: System, made: Made, stages: int) -> Made:
    """The stages of a step.

    Args:
        system: the right-hand sides.
        made: no stages yet.
        stages: 3 or more.

    Raises:
        ConfigError: the equations become too large.
    """
    nowhere, w = (0,) * system.space.ndim, 1 / stretched(stages)
    endings = ["", *(f".y{j}" for j in range(1, stages)), "'"]
    for j in range(1, stages + 1):
        late = 0.0 if j == 1 else _b(1) * w if j == 2 else stretched(j - 1) * w
        found = discretised(system, made.hoist, endings[j - 1], late, f"e{len(made.stages)}.")
        formulas: dict[str, Node] = {}
        for name, sums in found.sums.items():
            here = tap(name, nowhere)
            new = name + endings[j]
            if j == 1:
                slope = combine(sums, made.hoist)
                formulas[f"{name}.k0"] = slope
                step = Term(_of_step(_b(1) * w), slope)
                formulas[new] = combine([Term(ONE, here), step], made.hoist)
                continue

            m, n = _weights(j)
            before = tap(name + endings[j - 2], nowhere)
            terms = [Term(Constant(m), tap(name + endings[j - 1], nowhere))]
            terms += [Term(Constant(n), before)] if j > 2 else []
            terms.append(Term(Constant(1 - m - n if j > 2 else 1 - m), here))
            terms.append(Term(_of_step(-m * w * (1 - _b(j - 1))), tap(f"{name}.k0", nowhere)))
            terms += scaled(sums, _of_step(m * w))
            formulas[new] = combine(terms, made.hoist)
        made = extended(made, found, formulas, {name + endings[j]: name for name in found.sums})
    return made


def _of_step(weight: float) -> Node:
    return times(Constant(weight), DT)
