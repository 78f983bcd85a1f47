"""The terms of a stencil as kernels want them: offsets on three axes as a definition, weights as an
array.
"""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from tetris_sim.gpu_kernels.common.pairs import stored_weights
from tetris_sim.model.grid import on_three
from tetris_sim.model.problem import PAIR, Problem
from tetris_sim.model.stencil import chain_order

# that are computed with as they are
REAL = {"float64": "double", "float32": "float", PAIR.name: "Pair"}
STORED = {**REAL, "float16": "Half"}  # that memory may hold


def term_defines(problem: Problem) -> dict[str, str | int]:
    """TS_REAL, TS_TERMS and TS_OFFSETS."""
    offsets = problem.stencil.offsets
    places = [on_three(offsets[k], 0) for k in chain_order(offsets)]
    return {
        "TS_REAL": STORED[problem.dtype.name],
        "TS_TERMS": len(places),
        "TS_OFFSETS": ",".join("{" + ",".join(map(str, offset)) + "}" for offset in places),
    }


def term_weights(problem: Problem) -> npt.NDArray[Any]:
    """The weights in that order, in what the problem is computed in."""
    weights = [problem.stencil.weights[k] for k in chain_order(problem.stencil.offsets)]
    return stored_weights(weights, problem.arithmetic)
