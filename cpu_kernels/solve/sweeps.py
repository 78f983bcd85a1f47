"""Kernels of a multigrid solver over all points of a level: one pass over memory each.

Idea    The operator is A u = d u - sum of K (u_j - u) over the neighbours j, in this form, so that
        a small d is not lost beside large K. Threads take planes of the first axis each; sums are
        kept by plane, so that the answer has the same bits for any number of threads.
Layout  Flat arrays, all float32 or all float64, of a box (n0, n1, n2). `k0`, `k1`, `k2` are
        conductances between a point and the next one along each axis, that of the last point
        leading round to the first one; where the axis is no ring it is 0.
Limits  A point without neighbours and without d stays 0.
Test    tests/kernels/test_solve_sweeps.py
"""

from __future__ import annotations

from tetris_sim.cpu_kernels.compiled.intrinsics import fma, load, njit, store


@njit(nogil=True, cache=True, inline="always")
def gain(k0, k1, k2, d, u, p, beside):
    """Flow into a point, and the sum of its coefficients (the diagonal); `beside` holds the indices
    of its neighbours.
    """
    a, b, c, e, f, g = beside
    here = load(u, p)
    wa, wb, wc, we = load(k0, a), load(k0, p), load(k1, c), load(k1, p)
    wf, wg, wd = load(k2, f), load(k2, p), load(d, p)
    # Differences are multiplied, not values: then a small d is not lost beside large conductances.
    flow = wa * (load(u, a) - here)
    flow = fma(wb, load(u, b) - here, flow)
    flow = fma(wc, load(u, c) - here, flow)
    flow = fma(we, load(u, e) - here, flow)
    flow = fma(wf, load(u, f) - here, flow)
    flow = fma(wg, load(u, g) - here, flow)
    return fma(-wd, here, flow), ((wa + wb) + (wc + we)) + ((wf + wg) + wd)


@njit(nogil=True, cache=True, inline="always")
def row_places(i, j, box):
    """First elements of a row and of the rows next to it along the first two axes, around the
    ends.
    """
    n0, n1, n2 = box
    p = (i * n1 + j) * n2
    a = ((i if i > 0 else n0) - 1) * n1 * n2 + j * n2
    b = (i + 1 if i + 1 < n0 else 0) * n1 * n2 + j * n2
    c = (i * n1 + (j if j > 0 else n1) - 1) * n2
    e = (i * n1 + (j + 1 if j + 1 < n1 else 0)) * n2
    return p, a, b, c, e


@njit(nogil=True, cache=True, inline="always")
def relaxed(k0, k1, k2, d, f, u, weight, p, beside):
    """The value of a point after one step of weighted Jacobi."""
    flow, whole = gain(k0, k1, k2, d, u, p, beside)
    # whole, which is 0 then, is a 0 of the right type
    step = weight * (load(f, p) + flow) / whole
    return load(u, p) + (step if whole > 0 else whole)


@njit(nogil=True, cache=True, error_model="numpy")
def relax(first, last, box, operator, f, u, weight, v):
    """V = u + weight (f - A u) / diagonal, in planes first..last-1."""
    k0, k1, k2, d = operator
    n = box[2]
    for i in range(first, last):
        for j in range(box[1]):
            p, a, b, c, e = row_places(i, j, box)
            # The two ends wrap around; the interior between them vectorises without that test.
            for x in (0, n - 1):
                low, high = (x if x > 0 else n) - 1, x + 1 if x + 1 < n else 0
                beside = (a + x, b + x, c + x, e + x, p + low, p + high)
                store(v, p + x, relaxed(k0, k1, k2, d, f, u, weight, p + x, beside))
            for x in range(1, n - 1):
                beside = (a + x, b + x, c + x, e + x, p + x - 1, p + x + 1)
                store(v, p + x, relaxed(k0, k1, k2, d, f, u, weight, p + x, beside))


@njit(nogil=True, cache=True, error_model="numpy")
def begin(first, last, box, operator, f, weight, v):
    """`relax` of u = 0."""
    k0, k1, k2, d = operator
    n = box[2]
    for i in range(first, last):
        for j in range(box[1]):
            p, a, _, c, _ = row_places(i, j, box)
            for x in range(n):
                q = p + x
                # With u = 0 only the right-hand side and the diagonal remain.
                whole = load(k0, a + x) + load(k0, q) + load(k1, c + x) + load(k1, q)
                low = q - 1 if x > 0 else p + n - 1
                whole += load(k2, low) + load(k2, q) + load(d, q)
                store(v, q, weight * load(f, q) / whole if whole > 0 else whole)


@njit(nogil=True, cache=True, error_model="numpy")
def residual(first, last, box, operator, f, u, v):
    """V = f - A u."""
    k0, k1, k2, d = operator
    n = box[2]
    for i in range(first, last):
        for j in range(box[1]):
            p, a, b, c, e = row_places(i, j, box)
            for x in (0, n - 1):
                low, high = (x if x > 0 else n) - 1, x + 1 if x + 1 < n else 0
                beside = (a + x, b + x, c + x, e + x, p + low, p + high)
                store(v, p + x, load(f, p + x) + gain(k0, k1, k2, d, u, p + x, beside)[0])
            for x in range(1, n - 1):
                beside = (a + x, b + x, c + x, e + x, p + x - 1, p + x + 1)
                store(v, p + x, load(f, p + x) + gain(k0, k1, k2, d, u, p + x, beside)[0])


@njit(nogil=True, cache=True, inline="always")
def dot(u, v, p, n):
    """Sum of u v over a run of points, in eight parts so that it is a matter of vectors."""
    # Eight independent sums in a fixed order: vectorised, and the same bits everywhere.
    t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = 0.0
    eighths = n // 8
    for k in range(eighths):
        q = p + 8 * k
        t0 += load(u, q) * load(v, q)
        t1 += load(u, q + 1) * load(v, q + 1)
        t2 += load(u, q + 2) * load(v, q + 2)
        t3 += load(u, q + 3) * load(v, q + 3)
        t4 += load(u, q + 4) * load(v, q + 4)
        t5 += load(u, q + 5) * load(v, q + 5)
        t6 += load(u, q + 6) * load(v, q + 6)
        t7 += load(u, q + 7) * load(v, q + 7)

    for q in range(p + 8 * eighths, p + n):
        t0 += load(u, q) * load(v, q)
    return ((t0 + t1) + (t2 + t3)) + ((t4 + t5) + (t6 + t7))


@njit(nogil=True, cache=True, error_model="numpy")
def apply(first, last, box, operator, u, v, sums):
    """V = A u, and by plane the sum of u v."""
    k0, k1, k2, d = operator
    n = box[2]
    for i in range(first, last):
        total = 0.0
        for j in range(box[1]):
            p, a, b, c, e = row_places(i, j, box)
            for x in (0, n - 1):
                low, high = (x if x > 0 else n) - 1, x + 1 if x + 1 < n else 0
                beside = (a + x, b + x, c + x, e + x, p + low, p + high)
                store(v, p + x, -gain(k0, k1, k2, d, u, p + x, beside)[0])

            for x in range(1, n - 1):
                beside = (a + x, b + x, c + x, e + x, p + x - 1, p + x + 1)
                store(v, p + x, -gain(k0, k1, k2, d, u, p + x, beside)[0])
            total += dot(u, v, p, n)
        sums[i] = total


@njit(nogil=True, cache=True, inline="always")
def leads_on(places, n, i):
    """Whether there is one between a kept plane and the next one; of these number place - i."""
    return (places[i + 1] if i + 1 < len(places) else n) == places[i] + 2


@njit(nogil=True, cache=True, error_model="numpy")
def restrict_rows(first, last, n, run, places, r, low, high, coarse):
    """Restrict along an axis other than the last: the values of kept rows plus weighted shares of
    the rows between them.

    Computes rows first..last-1 of the result, which are `places` along an axis of n points in the
    finer level; each is a run of points.
    """
    kept = len(places)
    between = n - kept
    for row in range(first, last):
        o, i = row // kept, row % kept
        target, p = row * run, (o * n + places[i]) * run
        before = (i if i > 0 else kept) - 1
        for x in range(run):
            store(coarse, target + x, load(r, p + x))

        # The next row is dropped if it lies between two kept ones.
        if leads_on(places, n, i):
            w, q = (o * between + places[i] - i) * run, p + run
            for x in range(run):
                coarse[target + x] += low[w + x] * r[q + x]
        if leads_on(places, n, before):
            w = (o * between + places[before] - before) * run
            q = (o * n + places[before] + 1) * run
            for x in range(run):
                coarse[target + x] += high[w + x] * r[q + x]


@njit(nogil=True, cache=True, error_model="numpy")
def restrict_line(first, last, n, places, r, low, high, coarse):
    """Restrict along the last axis, as `restrict_rows` does, for lines first..last-1."""
    kept = len(places)
    between = n - kept
    for line in range(first, last):
        p, w, target = line * n, line * between, line * kept
        for i in range(kept):
            at, before = places[i], (i if i > 0 else kept) - 1
            value = load(r, p + at)
            if leads_on(places, n, i):
                value += load(low, w + at - i) * load(r, p + at + 1)
            if leads_on(places, n, before):
                last_at = places[before]
                value += load(high, w + last_at - before) * load(r, p + last_at + 1)
            store(coarse, target + i, value)


@njit(nogil=True, cache=True, error_model="numpy")
def prolong_rows(first, last, n, run, places, coarse, low, high, fine):
    """Add to kept rows of the finer level what is in rows first..last-1, and to those behind
    them their share.
    """
    kept = len(places)
    between = n - kept
    for row in range(first, last):
        o, i = row // kept, row % kept
        c, p = row * run, (o * n + places[i]) * run
        after = (o * kept + (i + 1 if i + 1 < kept else 0)) * run
        for x in range(run):
            fine[p + x] += coarse[c + x]
        if leads_on(places, n, i):
            w, q = (o * between + places[i] - i) * run, p + run
            for x in range(run):
                fine[q + x] += low[w + x] * coarse[c + x] + high[w + x] * coarse[after + x]


@njit(nogil=True, cache=True, error_model="numpy")
def prolong_line(first, last, n, places, coarse, low, high, fine):
    """Prolong along the last axis, as `prolong_rows` does, for lines first..last-1."""
    kept = len(places)
    between = n - kept
    for line in range(first, last):
        p, w, c = line * n, line * between, line * kept
        for i in range(kept):
            at = places[i]
            fine[p + at] += load(coarse, c + i)
            if leads_on(places, n, i):
                after, share = c + (i + 1 if i + 1 < kept else 0), w + at - i
                value = load(low, share) * load(coarse, c + i)
                value += load(high, share) * load(coarse, after)
                fine[p + at + 1] += value


@njit(nogil=True, cache=True, error_model="numpy")
def descend(first, last, run, length, q, r, small, sums):
    """R -= length q, `small` = r, in runs first..last-1, and by run the sum of r^2."""
    for plane in range(first, last):
        # Separate loops vectorise; the run is still in a cache.
        for x in range(plane * run, (plane + 1) * run):
            r[x] -= length * q[x]
        for x in range(plane * run, (plane + 1) * run):
            small[x] = r[x]
        sums[plane] = dot(r, r, plane * run, run)


@njit(nogil=True, cache=True, error_model="numpy")
def multiply(first, last, run, u, v, sums):
    """By run the sums of u v."""
    for plane in range(first, last):
        sums[plane] = dot(u, v, plane * run, run)


@njit(nogil=True, cache=True, error_model="numpy")
def project(first, last, run, z, q, r, turned, gained):
    """By run the sums of z q and of z r."""
    for plane in range(first, last):
        turned[plane] = dot(z, q, plane * run, run)
        gained[plane] = dot(z, r, plane * run, run)


@njit(nogil=True, cache=True, error_model="numpy")
def turn(first, last, run, z, share, length, p, u):
    """U += length p, p = z + share p."""
    for x in range(first * run, last * run):
        was = p[x]
        u[x] += length * was
        p[x] = z[x] + share * was
