"""What is converted without pint is what pint gives, to the last bit."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from tetris_sim.config.sections import units


def number(rng: random.Random) -> str:
    """Short ones, floats, far exponents, more digits than a decimal keeps."""
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randrange(1, 45)))
    return rng.choice(
        [
            str(rng.randrange(100_000)),
            repr(rng.uniform(-1e3, 1e3)),
            f"{rng.uniform(0, 10):.17f}e{rng.randrange(-330, 330)}",
            f"{digits}.{digits[::-1]}",
        ]
    )


PAIRS = [
    *((unit, target) for target, known in units.COMMON.items() for unit in known),
    *units.ZEROS,
]


@pytest.mark.parametrize("pair", PAIRS, ids=" to ".join)
def test_a_known_unit_gives_the_bits_that_pint_gives(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, (unit, target) = random.Random(str(pair)), pair
    numbers = [number(rng) for _ in range(100)]

    def converted() -> list[float]:
        return [
            units.convert(it, unit, target, difference=target == "delta_degC") for it in numbers
        ]

    ours = converted()
    monkeypatch.setattr(units, "COMMON", {})
    monkeypatch.setattr(units, "ZEROS", {})
    if unit in ("degC", "°C"):
        # pint goes by way of kelvins, and loses what is far below them.
        assert ours == pytest.approx(converted(), rel=1e-15, abs=1e-24)
    else:
        assert ours == converted()
    assert units._registry.cache_info().currsize == 1


def test_an_ordinary_configuration_does_not_need_pint() -> None:
    code = "import sys; from tetris_sim.__main__ import main; main(['validate', 'examples/copper_plate.yaml']); sys.exit('pint' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
