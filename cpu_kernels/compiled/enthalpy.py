"""Source of what a loop through a medium does where the state is heat content: the curves of
materials, and what flows by them.

Idea    A state belongs to a piece of the curves of its id, the number of knots behind the first one
        that it has reached. Few are compared, many are searched by halving: the same number.
Layout  `heat` is `enthalpy_arrays` of `medium.py`. A piece is known by its index in the knots.
Test    tests/kernels/test_enthalpy.py
"""

from __future__ import annotations

from collections.abc import Iterator

from tetris_sim.conduction import CONDUCTIVITY, MIRROR, TEMPERATURE
from tetris_sim.problem import Problem

_FEW = 6  # pieces that are compared one by one
_COLUMNS = {MIRROR: "PHI", TEMPERATURE: "T", CONDUCTIVITY: "K"}
_HEAD = "@njit(nogil=True, cache=True)"

# In the order of the contract of `enthalpy.py`: half a cell each, then their contact.
_CURVES = f"""KNOTS, CURVES, HALF, CONTACT, KINDS = 0, 1, 2, 3, 4
PHI, T, K = 0, 2, 4


{_HEAD}
def piece_of(knots, m, state):
{{search}}


{_HEAD}
def value_of(heat, at, state, column):
    curves, place = heat[CURVES], 6 * at + column
    return fma(curves[place + 1], state - heat[KNOTS][at], curves[place])


{_HEAD}
def between_materials(heat, axis, n_ids, m, at, here, j, by, there):
    half, row = heat[HALF], axis * n_ids
    resistance = divide(half[row + m], value_of(heat, at, here, K))
    resistance += divide(half[row + j], value_of(heat, by, there, K))
    resistance += heat[CONTACT][(row + m) * n_ids + j]
    return divide(value_of(heat, by, there, T) - value_of(heat, at, here, T), resistance)

"""


def curves_source(problem: Problem) -> Iterator[str]:
    """`piece_of`, `value_of` and `between_materials`; nothing if the state is a temperature."""
    assert problem.conduction is not None
    if (enthalpy := problem.conduction.enthalpy) is not None:
        yield _CURVES.format(search="\n".join(_search(enthalpy.n_pieces)))


def _search(n_pieces: int) -> Iterator[str]:
    yield f"    low = m * {n_pieces}"
    if n_pieces <= _FEW:
        reached = [f" + (knots[low + {k}] <= state)" for k in range(1, n_pieces)]
        yield f"    return low{''.join(reached)}"
        return
    yield f"    high = low + {n_pieces}"
    yield "    while high - low > 1:"
    yield "        middle = (low + high) // 2"
    yield "        if knots[middle] <= state:"
    yield "            low = middle"
    yield "        else:"
    yield "            high = middle"
    yield "    return low"


def flow_lines(axis: int, place: str, *, first: bool) -> Iterator[str]:
    """What flows into the point `here` of id `m` and piece `at` from a neighbour, added to
    `gained`.

    Args:
        axis: array order.
        place: where the neighbour lies.
        first: whether nothing was gained yet.
    """
    yield f"j, there = np.intp(load(ids, {place})), load(u, {place})"
    yield "by = piece_of(heat[KNOTS], j, there)"
    yield "if heat[KINDS][m] == heat[KINDS][j]:"
    yield f"    between = load(conductance, {axis} * apart + m * n_ids + j)"
    yield "    rise = value_of(heat, by, there, PHI) - value_of(heat, at, here, PHI)"
    yield f"    gained = {'between * rise' if first else 'fma(between, rise, gained)'}"
    yield "else:"
    yield f"    flow = between_materials(heat, {axis}, n_ids, m, at, here, j, by, there)"
    yield f"    gained = {'flow' if first else 'gained + flow'}"


def seen_lines(inputs: dict[str, str]) -> Iterator[str]:
    """What the rule of a face sees of point `mirror + k`; its expressions are put into `inputs`."""
    yield "state = v[mirror + k]"
    yield "at = piece_of(heat[KNOTS], np.intp(ids[mirror + k]), state)"
    inputs |= {name: f"value_of(heat, at, state, {it})" for name, it in _COLUMNS.items()}
