"""Source of what the row kernel of `cpu.tessellate` knows about heat contents.

Idea    A potential is made of each heat content once per step, not once per neighbour: row by row,
        before rows around it are computed. Where a run of vectors has one record and curves have
        few pieces, all of the curves are in registers and each lane chooses its piece; elsewhere
        points are looked up one by one, beginning at the piece of the point before in their lane.
        Ghosts beyond ruled faces are potentials already.
        Beside other materials flow goes by temperature over resistance: a vector any of whose
        points lies there makes both flows, and each lane chooses. The conductance of such a face is
        the resistance of its contact instead, with the other sign.
Layout  `OPERANDS` of `kinds.py`. curves: six numbers for each knot, beginning and slope of
        potential, temperature and conductivity. columns: knot, beginning and slope of the potential
        of each piece, by id. half: by axis and id. Temperature and conductivity
        lie one and two rings behind the potential, of vectors beside other materials only.
Limits  The operations are those of `compiled/conduction.py`, in their order.
Test    tests/kernels/test_tessellate_conduction.py
"""

from __future__ import annotations

from collections.abc import Iterator

from tetris_sim.cpu_kernels.tessellate.kinds import MANY, Conducting, operands_of

FEW = 6  # pieces that are compared one by one

# `low` is the place of the first piece of a curve. Tables have pieces that no state reaches.
CURVES = """@njit(nogil=True)
def piece_of(knots, low, pieces, state, guess):
    at, last = guess, low + pieces - 1
    if at < last and knots[at + 1] <= state:
        at += 1
    elif at > low and not knots[at] <= state:
        at -= 1
    if (at == low or knots[at] <= state) and (at == last or not knots[at + 1] <= state):
        return at
    at, high = low, low + pieces
    while high - at > 1:
        middle = (at + high) >> 1
        if knots[middle] <= state:
            at = middle
        else:
            high = middle
    return at


@njit(nogil=True)
def value_of(knots, curves, at, state, column):
    place = 6 * at + column
    return fma(curves[place + 1], state - knots[at], curves[place])


"""
_POINTS_HEAD = "def potentials_of_points(u, begin, to, first, last, beyond, operands):"
_POINTS = """    for lane in range(LANES):
        guess = 0
        for x in range(first, last):
            n, place = numbers[begin // LANES + x], x * LANES + lane
            low, state = patterns[n * LANES + lane] * pieces, u[begin + place]
            if beyond and codes[begin + place] != 0:
                # What curves that are the identity give: of -0.0, 0.0.
                flowing[to + place] = state + REAL(0.0)
                continue
            at = piece_of(knots, low, pieces, state, low + guess)
            guess = at - low
            flowing[to + place] = value_of(knots, curves, at, state, 0)
            if several[n] != 0:
                flowing[to + place + ring] = value_of(knots, curves, at, state, 2)
                flowing[to + place + 2 * ring] = value_of(knots, curves, at, state, 4)
"""
_ROW_HEAD = "def potentials_of_row(u, begin, to, tag, column, last_column, operands):"


def potentials_source(kind: Conducting, lanes: int) -> list[str]:
    """Source of `potentials_of_row` and `sum_of_several`."""
    functions = [(_POINTS_HEAD, _POINTS.splitlines())]
    functions += [(_ROW_HEAD, list(_points_of_row() if kind.pieces == MANY else _row(kind, lanes)))]
    lines = CURVES.splitlines()
    for head, body in functions:
        lines += ["@njit(nogil=True)", head, *operands_of(body), *body, "", ""]
    return [*lines, *_several(kind, lanes)]


def _points_of_row() -> Iterator[str]:
    """Every point is looked up."""
    call = "potentials_of_points(u, begin, to, column - 1, last_column + 1, True, operands)"
    yield f"    {call}"


def _row(kind: Conducting, lanes: int) -> Iterator[str]:
    """The curves of a record stay in registers as long as vectors have it."""
    curve = [
        f"{name}{k} = gather(moved(columns, {3 * k + row} * n_ids), patterns, known * {lanes})"
        for k in range(kind.pieces)
        for row, name in enumerate(("knot", "value", "slope"))
    ]
    yield "    known = numbers[begin // LANES + column]"
    yield from (f"    {line}" for line in curve)
    yield "    for p in range(column - 1, last_column + 1):"
    yield "        n = numbers[begin // LANES + p]"
    # The vectors at the ends may have ghosts.
    yield "        end = p < column or p == last_column or tags[tag] == BEYOND"
    yield "        if end or several[n] != 0:"
    yield "            potentials_of_points(u, begin, to, p, p + 1, end, operands)"
    yield "            continue"
    yield "        if n != known:"
    yield "            known = n"
    yield from (f"            {line}" for line in curve)

    yield f"        state = load(u, begin + p * {lanes})"
    for name in ("knot", "value", "slope"):
        chosen = f"{name}0"
        for k in range(1, kind.pieces):
            chosen = f"where_reached(state, knot{k}, {name}{k}, {chosen})"
        yield f"        {name} = {chosen}"
    yield "        rise = subtract(state, knot)"
    yield f"        store(flowing, to + p * {lanes}, fma_vector(slope, rise, value))"


def _several(kind: Conducting, lanes: int) -> Iterator[str]:
    """The sum of a vector of points beside other materials."""
    yield "@njit(nogil=True)"
    yield "def sum_of_several(total, here, n, near, flowing, ring, records, patterns, half, n_ids):"
    yield "    temperatures, conductivities = moved(flowing, ring), moved(flowing, 2 * ring)"
    yield "    u, t = load(flowing, here), load(temperatures, here)"
    yield "    k = load(conductivities, here)"

    size = kind.slots * lanes
    for axis in range(kind.ndim):
        yield f"    halves = moved(half, {axis} * n_ids)"
        for side in (0, 1):
            place, number = (f"near[{2 * (2 * axis + side) + k}]" for k in (0, 1))
            first = not kind.heated and axis == side == 0
            yield f"    there, its = {place}, {number}"
            yield f"    between = load(records, {'n' if side else 'its'} * {size} + {axis * lanes})"
            rise = "subtract(load(flowing, there), u)"
            alike = f"multiply(between, {rise})" if first else f"fma_vector(between, {rise}, total)"
            yield f"    alike = {alike}"
            yield "    if any_signed(between):"
            yield f"        own = divide_vector(gather(halves, patterns, n * {lanes}), k)"
            yield f"        other = divide_vector(gather(halves, patterns, its * {lanes}),"
            yield "                              load(conductivities, there))"
            # The contact has the other sign: this adds it.
            yield "        resistance = subtract(add_vector(own, other), between)"
            yield "        rise = subtract(load(temperatures, there), t)"
            yield "        flow = divide_vector(rise, resistance)"
            different = "flow" if first else "add_vector(total, flow)"
            yield f"        alike = where_signed(between, {different}, alike)"
            yield "    total = alike"
    yield "    return total"
    yield ""
    yield ""


def potentials_call(plane: str, row: str, ring: int) -> str:
    """The line that makes the potentials of a row, of the computed columns and one on each side."""
    to = f"({plane} & {ring - 1}) * pitch0 + {row} * pitch1"
    where = f"{plane} * pitch0 + {row} * pitch1, {to}, {plane} * tag_plane + {row} * tag_row"
    return f"potentials_of_row(u, {where}, column, last_column, operands)"
