"""What is right in the newcomer's tasks: exact solutions, and for the chip and the laser numerical
ones that share nothing with the program. Temperatures in degC, arrays as fields of the run (y, x).

Sources: transfer matrices of walls as in ISO 13786, inverted by Talbot's contour (Abate and Valko
2004); slabs, fins and plates by separation of variables (Carslaw and Jaeger); a Gaussian beam on a
half space by its Green function (Eagar and Tsai 1983); the travelling wave of Fisher's equation by
Ablowitz and Zeppetella (1979); radiation is NAFEMS' T2, the steady plate NAFEMS' T4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

LAYERS = ((0.015, 0.7, 1.4e6), (0.24, 0.72, 1920 * 835.0), (0.12, 0.035, 43500.0))
WALL = (*LAYERS, (0.015, 0.9, 1.8e6))  # thickness [m], conductivity, heat capacity per volume
INSIDE, OUTSIDE = 7.7, 25.0  # h [W/(m^2 K)]
DAY = 86400.0
WEATHER = (5.0, ((8.0, DAY), (3.0, 4 * DAY)))  # mean [degC], amplitudes and periods [s]
COPPER, ALUMINIUM = 401 / (8933 * 385), 237 / (2702 * 903)  # diffusivities [m^2/s]
STEEL, GRANITE = 60.5 / (7854 * 434), 2.79 / (2630 * 775)


def centres(*axes: tuple[float, int]) -> list[Numbers]:
    """Middles of the cells of axes (length, number), x first, as open grids of a (z, y, x) array."""
    lines = [(np.arange(n) + 0.5) * length / n for length, n in reversed(axes)]
    return [np.asarray(it) for it in reversed(np.meshgrid(*lines, indexing="ij", sparse=True))]


def wall_response(s: complex, x: Numbers) -> npt.NDArray[np.complex128]:
    """Temperatures in the wall for 1 degree outside and 0 inside, both times exp(s t)."""
    rows = np.array([1.0, -INSIDE], complex)  # temperature and flux at the inner face
    found, start = np.zeros(x.shape, complex), 0.0
    for thickness, k, capacity in WALL:
        root = np.sqrt(s * capacity / k)
        here = (x >= start) & (x < start + thickness)
        depth = (x[here] - start) * root
        found[here] = rows[0] * np.cosh(depth) - rows[1] * np.sinh(depth) / (k * root)

        c, d = np.cosh(thickness * root), np.sinh(thickness * root)
        rows = np.array(
            [rows[0] * c - rows[1] * d / (k * root), rows[1] * c - rows[0] * k * root * d]
        )
        start += thickness
    return np.asarray(found * OUTSIDE / (OUTSIDE * rows[0] - rows[1]))


def wall() -> Numbers:
    """From 20 degC on, 12 h after it has become -10 degC outside."""
    (x,), t, terms = centres((0.39, 156)), 12 * 3600.0, 24
    r = 2 * terms / (5 * t)
    total = 0.5 * np.exp(r * t) * wall_response(r, x).real / r
    for theta in np.arange(1, terms) * np.pi / terms:
        cot = 1 / np.tan(theta)
        s = r * theta * (cot + 1j)
        turn = 1 + 1j * (theta + (theta * cot - 1) * cot)
        total += (np.exp(s * t) * wall_response(s, x) / s * turn).real
    return np.asarray(20.0 - 30.0 * total * r / terms)


def weather() -> Numbers:
    """After 12 days of it, when the beginning is forgotten (a day and a half is e-fold)."""
    (x,), t = centres((0.39, 156)), 12 * DAY
    mean, waves = WEATHER
    found = 20 + (mean - 20) * wall_response(1e-12, x).real
    for amplitude, period in waves:
        s = 2j * np.pi / period
        found += amplitude * (np.exp(s * t) * wall_response(s, x)).imag
    return np.asarray(found)


def weather_table() -> str:
    """The file with the weather, a value every ten minutes."""
    mean, waves = WEATHER
    lines = ["time [h], ambient [degC]"]
    for k in range(12 * 144 + 1):
        value = mean + sum(a * math.sin(2 * math.pi * 600 * k / period) for a, period in waves)
        lines.append(f"{k / 6:.6f}, {value:.6f}")
    return "\n".join(lines) + "\n"


def radiation() -> Numbers:
    """A straight line down to the temperature at which the face sends out what arrives."""
    from scipy.optimize import brentq

    sigma, k, length = 5.670374419e-8, 55.563, 0.1
    face = brentq(
        lambda u: k * (1000 - u) / length - 0.98 * sigma * (u**4 - 300**4), 300, 1000, xtol=1e-12
    )
    (x,) = centres((length, 100))
    return np.asarray(1000 + (face - 1000) * x / length - 273.15)


def tensor() -> Numbers:
    """A Gaussian whose covariance grows by 2 K t."""
    x, y = (it - 0.08 for it in centres((0.16, 160), (0.16, 160)))
    along = math.cos(math.pi / 6) * x + math.sin(math.pi / 6) * y
    across = math.cos(math.pi / 6) * y - math.sin(math.pi / 6) * x
    a, b = (6e-3**2 + 2 * kappa * 10 for kappa in (1e-5, 1e-6))
    peak = 100 * 6e-3**2 / math.sqrt(a * b)
    return np.asarray(peak * np.exp(-(along**2) / (2 * a) - across**2 / (2 * b)))


def roots_of_tangent(biot: float, n: int) -> Numbers:
    """The first n roots of z tan z = biot."""
    from scipy.optimize import brentq

    def found(i: int) -> float:
        low, high = i * math.pi, (i + 0.5) * math.pi
        return float(brentq(lambda z: z * math.sin(z) - biot * math.cos(z), low, high, xtol=1e-14))

    return np.array([found(i) for i in range(n)])


def slab_terms(biot: float, n: int) -> tuple[Numbers, Numbers]:
    """Roots z and weights of 1 = sum of weight cos(z x / L), z tan z = biot."""
    z = roots_of_tangent(biot, n)
    return z, 2 * np.sin(z) / (z + np.sin(z) * np.cos(z))


def steady() -> Numbers:
    """The plate of NAFEMS T4, where the series converges fast: the upper three quarters."""
    x, y = centres((0.6, 60), (1.0, 100))
    z, weights = slab_terms(750 * 0.6 / 52, 60)
    total = np.zeros((100, 60))
    for root, weight in zip(z / 0.6, weights, strict=True):
        # Of exp(-root y), and of what is sent back from the top, so that nothing overflows.
        film = 750 / 52
        back = (root - film) / (root + film) * np.exp(-2 * root * (1 - y))
        ends = (root - film) / (root + film) * math.exp(-2 * root)
        total += weight * np.cos(root * x) * np.exp(-root * y) * (1 + back) / (1 + ends)
    return np.asarray(100 * total[25:])


def fin() -> Numbers:
    """Half of a fin whose tip is insulated, in both dimensions."""
    x, y = centres((0.05, 200), (1e-3, 8))
    z, weights = slab_terms(50 * 1e-3 / 237, 30)
    total = np.zeros((8, 200))
    for root, weight in zip(z / 1e-3, weights, strict=True):
        shape = (
            np.exp(-root * x) * (1 + np.exp(-2 * root * (0.05 - x))) / (1 + math.exp(-0.1 * root))
        )
        total += weight * np.cos(root * y) * shape
    return np.asarray(20 + 80 * total)


def laser() -> Numbers:
    """The heat of 15 ms under the beam, by quadrature of the Green function of a half space."""
    x, y, z = centres((3e-3, 75), (1e-3, 25), (1e-3, 25))
    depth, kappa, capacity, sigma = 1e-3 - z, 24 / 5.2e6, 5.2e6, 1e-4
    nodes, weights = np.polynomial.legendre.leggauss(200)
    total = np.zeros((25, 25, 75))
    end = math.sqrt(15e-3)
    for root, weight in zip(end * (nodes + 1) / 2, end * weights / 2, strict=True):
        ago = root**2  # d(ago) = 2 root d(root): smooth at 0
        width = sigma**2 + 2 * kappa * ago
        middle = 0.5e-3 + 0.1 * (15e-3 - ago)
        plane = np.exp(-((x - middle) ** 2 + y**2) / (2 * width)) / (2 * math.pi * width)
        below = 2 / math.sqrt(4 * math.pi * kappa) * np.exp(-(depth**2) / (4 * kappa * ago))
        total += 2 * weight * 35 / capacity * plane * below
    return 25 + total


def own() -> Numbers:
    """A front that moves at 5/sqrt(6)."""
    (x,) = centres((100.0, 1000))
    return np.asarray((1 + np.exp((x - 20 - 5 / math.sqrt(6) * 20) / math.sqrt(6))) ** -2)


def sweep() -> Numbers:
    """The highest of the temperatures in the cells, for each h."""
    found = []
    for h in np.linspace(50, 600, 12):
        z, weights = slab_terms(h * 0.05 / 60.5, 40)
        terms = weights * np.exp(-(z**2) * STEEL * 600 / 0.05**2) * np.cos(z * 0.01)
        found.append(20 + 80 * terms.sum())
    return np.array(found)


def modes(
    sizes: Sequence[tuple[float, int]],
    kappa: float,
    t: float,
    waves: Sequence[tuple[float, Sequence[int]]],
    *,
    wave: Callable[[Numbers], Numbers] = np.cos,
    mean: float = 0.0,
) -> Numbers:
    """Products of sines or cosines with whole numbers of half waves, each fading at its own rate."""
    axes, total = centres(*sizes), np.asarray(mean)
    for amplitude, numbers in waves:
        decay = sum(
            (n * math.pi / length) ** 2 for n, (length, _) in zip(numbers, sizes, strict=True)
        )
        part = np.asarray(amplitude * math.exp(-kappa * decay * t))
        for n, axis, (length, _) in zip(numbers, axes, sizes, strict=True):
            part = part * wave(n * math.pi * axis / length)
        total = total + part
    return total


def initial() -> Numbers:
    """Two waves of a plate whose faces are at 0 degC."""
    waves = ((100.0, (1, 1)), (30.0, (3, 2)))
    return modes(((0.04, 128), (0.03, 96)), COPPER, 0.2, waves, wave=np.sin)


def notebook() -> Numbers:
    """A rod whose ends are at 0 degC."""
    return modes(((1.0, 100),), COPPER, 600, ((100.0, (1,)),), wave=np.sin)


def long() -> Numbers:
    """40 days in a block of granite."""
    return modes(((4.0, 192), (4.0, 192)), GRANITE, 40 * DAY, ((50.0, (1, 1)),), mean=10)


def restart() -> Numbers:
    """An insulated plate after 5 s."""
    return modes(((0.2, 200), (0.15, 150)), COPPER, 5, ((80.0, (1, 2)),), mean=20)


def verbs() -> Numbers:
    """The rod of the template."""
    (x,) = centres((0.1, 1000))
    return _rod(x, 20.0)


def verbs_data() -> str:
    """What a thermometer at a quarter of the rod shows, as `fit` reads it."""
    times = np.arange(1.0, 10.0)
    rows = [f"{t:g},{_rod(np.array([25e-3]), t)[0]:.6f}" for t in times]
    return "\n".join(["time [s],quarter [degC]", *rows]) + "\n"


def _rod(x: Numbers, t: float) -> Numbers:
    """A bump and a flux, mirrored at both ends."""
    from scipy.special import erfc

    length, width = 0.1, 5e-3
    spread, reach = width**2 + 4 * STEEL * t, 2 * math.sqrt(STEEL * t)
    q = 20e3 / 60.5

    def alone(at: Numbers) -> Numbers:
        """In a rod without an end, even around 0."""
        bump = sum(np.exp(-((at - side * length / 4) ** 2) / spread) for side in (1, -1))
        far = np.abs(at)
        flux = q * (
            reach / math.sqrt(math.pi) * np.exp(-((far / reach) ** 2)) - far * erfc(far / reach)
        )
        return np.asarray(80 * width / math.sqrt(spread) * bump + flux)

    return 20 + alone(x) - alone(2 * length - x) - alone(2 * length + x)
