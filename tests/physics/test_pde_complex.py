"""Complex fields: formulas against NumPy, the same bits as two real equations, packets and plane
waves that are known, and mistakes at the user's keys.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.config_cases import mistakes, read
from tests.support.pde_cases import whole_and_continued
from tetris_sim import Periodic, solve_pde
from tetris_sim.api.running import run
from tetris_sim.apps.pde.complex import in_parts
from tetris_sim.apps.pde.language import Language
from tetris_sim.errors import ConfigError
from tetris_sim.model.formula import Constant, Variable, evaluate
from tetris_sim.model.slab import Slab

PSI, UNIT = (Variable("a"), Variable("b")), (Constant(0.0), Constant(1.0))
LANGUAGE = Language(1, ("a", "b", "u"), {"k": 1.3}, pairs={"psi": PSI, "I": UNIT})


@pytest.mark.parametrize(
    "text",
    [
        "psi*psi + 2j*psi - u",
        "u - I*psi/k",
        "psi**3 - psi**2/2 + 1.5e-1j",
        "psi**(-2) + psi**0",
        "1/psi",
        "u/(psi + 1j)",
        "conj(psi)*psi",
        "abs(psi)**2*psi + abs(psi)**4 + abs(psi)",
        "exp(psi) + exp(1j*u) + exp(u)",
        "sin(psi) - cos(psi)*sinh(psi)/cosh(psi)",
        "log(psi) + sqrt(psi) - log(u + 2)",
        "psi**(1 + 0.5j) + u**(2j)",
        "real(psi)*imag(psi) + arg(psi) + real(u) + imag(u)",
        "where(u > 0.5, psi, 1j)",
        "-(+psi) - conj(u)",
    ],
)
def test_formulas_are_those_of_numpy(text: str) -> None:
    rng = np.random.default_rng(3)
    a, b, u = rng.uniform(0.1, 1, (3, 50))
    values: dict[str, Any] = {"a": a, "b": b, "u": u, "k": np.float64(1.3)}
    real, imaginary = in_parts(LANGUAGE.compiled(text), LANGUAGE.pairs)
    names = {
        "psi": a + 1j * b,
        "u": u,
        "k": 1.3,
        "I": 1j,
        "real": np.real,
        "imag": np.imag,
        "conj": np.conj,
        "arg": np.angle,
        "abs": np.abs,
        "exp": np.exp,
        "sin": np.sin,
        "cos": np.cos,
        "sinh": np.sinh,
        "cosh": np.cosh,
        "log": np.log,
        "sqrt": np.sqrt,
        "where": np.where,
    }
    known = eval(text, {"__builtins__": {}}, names)  # noqa: S307
    right = np.broadcast_to(known, a.shape)
    np.testing.assert_allclose(evaluate(real, values), right.real, rtol=1e-12, atol=1e-13)
    found = 0.0 if imaginary is None else evaluate(imaginary, values)
    np.testing.assert_allclose(found, right.imag, rtol=1e-12, atol=1e-13)


COMPLEX = """\
grid: {shape: [24, 18], size: [2.4, 1.8]}
model:
  type: pde
  constants: {V: "x*y", g: 0.5, c: "1 + 0.2j"}
  fields:
    psi:
      complex: true
      equation: "1j*laplace(psi)/2 - 1j*V*psi - 1j*abs(psi)**2*psi"
      initial: {type: expression, expression: "exp(-(x - 1)**2 + 2j*y)"}
boundaries: {"*": {type: neumann}}
time: {steps: 20, dt: 1.0e-3, scheme: rk4}
"""
TWO = """\
grid: {shape: [24, 18], size: [2.4, 1.8]}
model:
  type: pde
  constants: {V: "x*y", g: 0.5}
  fields:
    psi_real:
      equation: "(-laplace(psi_imag))/2 - (-(V*psi_imag)) - (-((psi_real*psi_real + psi_imag*psi_imag)*psi_imag))"
      initial: {type: expression, expression: "exp(-(x - 1)**2)*cos(2*y)"}
    psi_imag:
      equation: "laplace(psi_real)/2 - V*psi_real - (psi_real*psi_real + psi_imag*psi_imag)*psi_real"
      initial: {type: expression, expression: "exp(-(x - 1)**2)*sin(2*y)"}
boundaries: {"*": {type: neumann}}
time: {steps: 20, dt: 1.0e-3, scheme: rk4}
"""


@pytest.mark.parametrize("scheme", ["rk4", "implicit"])
def test_two_real_equations_have_the_same_bits(scheme: str) -> None:
    fields = [run(read(text, f"time.scheme={scheme}")).fields for text in (COMPLEX, TWO)]
    for name in ("psi_real", "psi_imag"):
        np.testing.assert_array_equal(fields[0][name].values, fields[1][name].values)


def test_a_run_that_is_continued_has_the_same_bits(tmp_path: Path) -> None:
    whole, continued = whole_and_continued(COMPLEX, tmp_path, ("psi_real", "psi_imag"), every=8)
    np.testing.assert_array_equal(continued, whole)


def packet(x: Any, t: float, s: float, k: float) -> Any:
    """A free packet of i psi' = -psi_xx/2; L. I. Schiff, Quantum Mechanics, section 12."""
    z = 1 + 1j * t / (2 * s * s)
    return np.exp(-((x - k * t) ** 2) / (4 * s * s * z) + 1j * (k * x - k * k * t / 2)) / np.sqrt(z)


@pytest.mark.parametrize("scheme", ["rk4", "implicit"])
def test_a_free_packet_spreads_and_keeps_its_norm(scheme: str, tmp_path: Path) -> None:
    errors = []
    for n in (200, 400):
        text = f"""\
grid: {{shape: [{n}], size: [40], origin: {{x: -20}}}}
model:
  type: pde
  accuracy: 4
  constants: {{s: 1, k: 2}}
  fields:
    psi:
      complex: true
      equation: "1j*dxx(psi)/2"
      initial: {{type: expression, expression: "exp(-x**2/(4*s**2) + 1j*k*x)"}}
boundaries: {{"*": {{type: periodic}}}}
time: {{t_end: 1, scheme: {scheme}, dt: {0.5 / n}}}
output:
  pictures: false
  directory: {tmp_path}/{n}
  statistics: {{every: 0.25, formulas: {{norm: "integral(abs(psi)**2)"}}}}
"""
        result = run(read(text))
        x = (np.arange(n) + 0.5) * 40 / n - 20
        right = packet(x, 1.0, 1.0, 2.0)
        errors.append(float(np.abs(result.field("psi") - right).max()))
        norms = result.statistics["norm [1]"].to_numpy()
        np.testing.assert_allclose(norms, math.sqrt(2 * math.pi), rtol=1e-5)
    assert errors[1] < 2e-4
    assert errors[0] / errors[1] > 12


def test_plane_waves_of_ginzburg_and_landau_turn_as_they_must() -> None:
    n, q, b, c = 64, 0.5, 2.0, -1.2
    x = (np.arange(n) + 0.5) * 8 * math.pi / n
    h = 8 * math.pi / n
    # The wave number that differences see.
    square = (2 - 2 * math.cos(q * h)) / h**2
    size, frequency = math.sqrt(1 - square), c + (b - c) * square
    result = solve_pde(
        {"A": "A + (1 + 1j*b)*laplace(A) - (1 + 1j*c)*abs(A)**2*A"},
        {"A": size * np.exp(1j * q * x)},
        t_end=3,
        dt=0.01,
        scheme="rk4",
        spacing=h,
        constants={"b": b, "c": c},
        boundary=Periodic(),
    )
    right = size * np.exp(1j * (q * x - frequency * 3))
    np.testing.assert_allclose(result.field("A"), right, rtol=0, atol=1e-7)
    assert result.field("A").dtype == np.complex128


def test_faces_and_second_order_are_complex_too() -> None:
    """d2psi/dt2 = psi_xx between faces at which psi turns: sin(k (L - x)) ... as a standing wave
    exp(i t) cos(x)/cos(1).
    """
    text = """\
grid: {shape: [50], size: [1]}
model:
  type: pde
  fields:
    psi:
      complex: true
      second_order: "dxx(psi) - 0*psi_velocity"
      initial: {type: expression, expression: "cos(x)/cos(1)"}
      initial_velocity: {type: constant, value: 0}
      initial_velocity_imag: {type: expression, expression: "cos(x)/cos(1)"}
      boundaries: {x+: {type: dirichlet, value: "exp(1j*t)"}}
    v: {equation: "mean(abs(psi)**2) + real(conj(psi)*psi) - v", initial: {type: constant, value: 0}}
boundaries: {"*": {type: neumann}}
time: {t_end: 1, dt: 2.0e-3, scheme: rk4}
output: {pictures: false}
"""
    result = run(read(text))
    x = (np.arange(50) + 0.5) / 50
    np.testing.assert_allclose(
        result.field("psi"), np.exp(1j) * np.cos(x) / math.cos(1), rtol=0, atol=2e-4
    )
    assert {"psi_real", "psi_imag_velocity", "v"} <= {*result.fields}


def test_a_face_with_a_number_holds_the_real_part_alone() -> None:
    text = COMPLEX.replace('"*": {type: neumann}', '"*": {type: dirichlet, value: 2}')
    boundaries = read(text).build().system.boundaries
    values = [boundaries[name].faces[0][0].value for name in ("psi_real", "psi_imag")]  # type: ignore[union-attr]
    assert values == [2, 0]


def test_initial_values_of_both_parts() -> None:
    def state(*initial: str) -> Any:
        old = '      initial: {type: expression, expression: "exp(-(x - 1)**2 + 2j*y)"}\n'
        lines = "".join(f"      {it}\n" for it in initial)
        problem = read(COMPLEX.replace(old, lines)).build()
        return problem.initial(Slab.whole(problem.grid))

    a, b = state("initial: {type: random, seed: 1}", "initial_imag: {type: random, seed: 2}")
    assert 0.1 < np.abs(a - b).mean() < 1
    a, b = state('initial: {type: expression, expression: "3"}')
    assert (a.min(), a.max(), np.abs(b).max()) == (3, 3, 0)
    a, b = state(
        'initial: {type: expression, expression: "1j*x"}',
        'initial_imag: {type: expression, expression: "y"}',
    )
    # Given apart, the first one is the real part alone.
    assert np.abs(a).max() == 0
    assert b.max() == pytest.approx(1.75)


@pytest.mark.parametrize(
    ("old", "new", "key", "told"),
    [
        ("1j*V*psi", "1j*W*psi", "model.fields.psi.equation", "unknown name 'W'"),
        ("1j*V*psi", "1j*erf(psi)", "model.fields.psi.equation", "erf takes no complex"),
        ("1j*V*psi", "where(psi > 1, 1, 0)", "model.fields.psi.equation", "have no order"),
        ("1j*V*psi", "flux(psi**2, psi)", "model.fields.psi.equation", "parts flow apart"),
        ("1j*V*psi", "flux(2j*psi, psi)", "model.fields.psi.equation", "parts flow apart"),
        ("complex: true", "complex: 3", "model.fields.psi.complex", "true or false is wanted"),
        ("2j*y)", "2j*w)", "model.fields.psi.initial.expression", "unknown name 'w'"),
        ("type: expression,", "type: expresion,", "model.fields.psi.initial.type", "expresion"),
        ("0.2j", "0.2j*q", "model.constants.c", "unknown name 'q'"),
        ("{type: neumann}", "{type: dirichlet, value: q*1j}", "boundaries.*.value", "'q'"),
        ("initial: {", "initial_imag: {", "model.fields.psi", "initial is missing"),
    ],
)
def test_mistakes_have_the_key_and_place_of_the_user(
    old: str, new: str, key: str, told: str
) -> None:
    text = COMPLEX.replace(old, new, 1)
    (said,) = mistakes(text)
    assert f"{key}: " in said
    assert told in said
    # A field as a whole is told at its first line.
    line = next(k for k, it in enumerate(text.splitlines(), 1) if new in it)
    assert int(said.split(":")[1]) == (line if key != "model.fields.psi" else 6)
    # The column is that of the name in the text.
    if (name := told.rpartition("'")[0].rpartition("'")[2]) in ("W", "q"):
        column = int(said.split(":")[2])
        assert text.splitlines()[int(said.split(":")[1]) - 1][column - 1] == name


def test_what_does_not_fit_is_refused() -> None:
    real = COMPLEX.replace("      complex: true\n", "      initial_imag: {type: random}\n")
    assert any("initial_imag belongs to complex: true" in it for it in mistakes(real))
    both = mistakes(COMPLEX.replace("      complex: true\n", ""))
    assert ["psi.equation" in both[0], "psi.initial.expression" in both[1]] == [True, True]
    assert all("is a complex number" in it for it in both)
    more = '    psi_imag: {equation: "0*psi_imag", initial: {type: random}}\nboundaries'
    (said,) = mistakes(COMPLEX.replace("boundaries", more))
    assert "psi_imag is a part of the complex field psi already" in said
    (said,) = mistakes(
        COMPLEX.replace(
            "boundaries", '    u: {equation: "psi", initial: {type: random}}\nboundaries'
        )
    )
    assert "model.fields.u.equation" in said
    assert "write real(...)" in said
    with pytest.raises(ConfigError, match="of real numbers are wanted"):
        solve_pde({"u": np.ones(8) * 1j}, {"u": "laplace(u)"}, 3, dt=0.1)


@pytest.mark.parametrize(
    ("whole", "part"),
    [
        ("-flux((1 + x/40)*u, limiter: van_leer)", "-flux((1 + x/40)*U, limiter: van_leer)"),
        ("-flux(2*u, u)", "-flux(2*U, U)"),
        (
            "laplace(u) - flux(u*w**2, u, limiter: minmod)",
            "laplace(U) - flux(U*w**2, U, limiter: minmod)",
        ),
    ],
)
def test_both_parts_of_a_flux_flow_as_real_numbers(whole: str, part: str) -> None:
    phase = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    given: dict[str, Any] = {"spacing": 1.0, "faces": {"x": {"type": "periodic"}}}
    given |= {"t_end": 1.0, "dt": 0.05}
    w = 1 + 0.3 * np.sin(phase)
    found = solve_pde({"u": np.exp(1j * phase), "w": w}, {"u": whole, "w": "0"}, **given)
    for take in ("real", "imag"):
        own = {"U": getattr(np.exp(1j * phase), take), "w": w}
        real = solve_pde(own, {"U": part, "w": "0"}, **given)
        assert np.array_equal(getattr(found.field("u"), take), real.field("U"))
    assert abs(found.field("u").sum() - np.exp(1j * phase).sum()) < 1e-12
