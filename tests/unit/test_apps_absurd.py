"""Absurd numbers end in a sentence for the user or in a problem that can be computed, never in
another exception.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tetris_sim.config import make_config
from tetris_sim.errors import TetrisError
from tetris_sim.model import reference
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, laplacian_names

extremes = st.sampled_from([5e-324, 1e-300, 1e-160, 1e-30, 1e30, 1e154, 1e160, 1.7e308, 3.5e38])
ordinary = st.floats(0.01, 100)
positive = st.integers(0, 15).flatmap(lambda dice: extremes if dice == 15 else ordinary)
values = st.builds(lambda sign, number: sign * number, st.sampled_from([1, -1, 0]), positive)
faces = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["dirichlet", "fixed"]), "value": values}),
    st.fixed_dictionaries({"type": st.just("neumann"), "flux": values}),
    st.fixed_dictionaries(
        {"type": st.just("robin"), "h": values.map(abs), "ambient": values},
        optional={"conductivity": positive},
    ),
)
counts = st.fixed_dictionaries({"steps": st.one_of(st.integers(0, 9), st.integers(0, 2**70))})
times = st.one_of(
    counts,
    st.fixed_dictionaries({"steps": st.just(2)}, optional={"cfl": st.floats(0.01, 0.2)}),
    st.fixed_dictionaries({"steps": st.just(2)}),
    st.fixed_dictionaries(
        {"t_end": positive}, optional={"dt": st.one_of(st.just("auto"), positive)}
    ),
)
initials = st.one_of(
    st.fixed_dictionaries({"type": st.just("constant"), "value": values}),
    st.fixed_dictionaries(
        {"type": st.just("gaussian"), "amplitude": values, "sigma": positive, "background": values}
    ),
    st.fixed_dictionaries(
        {"type": st.just("random"), "low": values, "high": values, "seed": st.integers(0, 2**130)}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("expression"),
            "expression": st.sampled_from(["c/x", "c**x", "exp(c*x)", "c"]),
            "constants": st.fixed_dictionaries({"c": values}),
        }
    ),
)


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    ndim = draw(st.integers(1, 3))
    shape = draw(st.lists(st.integers(2, 5), min_size=ndim, max_size=ndim))
    grid = {
        "shape": shape,
        draw(st.sampled_from(["size", "spacing"])): draw(
            st.lists(positive, min_size=ndim, max_size=ndim)
        ),
    }
    laplacian = {"type": st.just("heat"), "stencil": st.sampled_from(laplacian_names(ndim))}
    heat = st.one_of(
        st.fixed_dictionaries(laplacian | {"material": st.sampled_from(["copper", "air"])}),
        st.fixed_dictionaries(
            laplacian | {"diffusivity": positive}, optional={"conductivity": positive}
        ),
        st.fixed_dictionaries(
            laplacian | dict.fromkeys(("conductivity", "density", "specific_heat"), positive)
        ),
    )
    offset = st.tuples(*[st.integers(-3, 3)] * ndim)
    weights = st.dictionaries(offset, values, min_size=1, max_size=4)
    own = st.builds(
        lambda terms, growth: {
            "type": "stencil",
            "offsets": [list(offset) for offset in terms],
            "weights": list(terms.values()),
            "allow_growth": growth,
        },
        weights,
        st.booleans(),
    )
    names = [name for name in STENCIL_NAMES if f"{ndim}d" in name]
    named = st.fixed_dictionaries({"type": st.just("stencil"), "stencil": st.sampled_from(names)})
    model = draw(st.one_of(heat, heat, own, named))
    return {
        "grid": grid,
        "model": model,
        "initial": draw(initials),
        "boundaries": draw(
            st.fixed_dictionaries(
                {"*": faces}, optional={"x": st.one_of(st.just({"type": "periodic"}), faces)}
            )
        ),
        "time": draw(times if model["type"] == "heat" else counts),
        "compute": {"precision": draw(st.sampled_from(["float64", "float32", "float16"]))},
    }


@given(configuration=configurations())
@settings(max_examples=100)
def test_any_numbers_end_in_a_sentence_or_in_a_problem_that_can_be_computed(
    configuration: dict[str, Any],
) -> None:
    try:
        problem = make_config(configuration, environ={}).build()
        start = problem.initial(Slab.whole(problem.grid))
    except TetrisError as error:
        sentence = str(error)
        event("refused")
    else:
        event("accepted")
        sentence = ""
    if sentence:
        assert len(sentence) > 20
        return
    assert np.isfinite(start).all()
    assert problem.dt > 0
    assert problem.steps >= 0
    with np.errstate(
        all="ignore"
    ):  # values near the largest number may overflow; the run loop looks for that
        reference.advance(start, problem, 1)
