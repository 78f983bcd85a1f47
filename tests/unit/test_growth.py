"""Work grows no faster than what is given: thousands of unknown keys, rows of a table, objects of a
file. Calls are counted, since a clock depends on the machine.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tetris_sim.config import read_config
from tetris_sim.config.sections import varying
from tetris_sim.config.sections.quantities import (
    HEAT_FLUX,
    LENGTH,
    POWER,
    TEMPERATURE,
    TIME,
    Quantity,
)
from tetris_sim.errors import ConfigError
from tetris_sim.support import files, hdf5
from tetris_sim.support.hdf5 import OutsideError, refuse_outside

PLATE = """
schema: 1
grid: {shape: [16, 12], size: [15 mm, 15 mm]}
model: {type: heat, material: copper}
initial: {type: gaussian, amplitude: 100 K, sigma: 2 mm}
boundaries: {"*": {type: dirichlet, value: {table: heating.csv}}}
time: {dt: auto, steps: 10}
"""


@pytest.mark.parametrize("place", ["", "output:\n", "time:\n"])
def test_thousands_of_unknown_keys_are_compared_with_few(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared, real = [], difflib.get_close_matches

    def count(word: str, *others: Any, **options: Any) -> list[str]:
        compared.append(word)
        return list(real(word, *others, **options))

    monkeypatch.setattr(difflib, "get_close_matches", count)
    indent = "  " if place else ""
    keys = "".join(f"{indent}picturex{k}: 1\n" for k in range(2000))
    with pytest.raises(ConfigError) as caught:
        read_config("schema: 1\n" + place + keys, name="case.yaml", base=tmp_path)
    assert len(compared) < 300
    assert str(caught.value).count("unknown key") >= 90
    assert "more mistakes" in str(caught.value)


def test_a_table_is_read_once_for_all_faces_and_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, real = [], files.read_given

    def count(path: Path, most: int) -> bytes:
        reads.append(path)
        return real(path, most)

    monkeypatch.setattr(varying, "read_given", count)
    table = tmp_path / "heating.csv"
    table.write_text("time [ms], value [degC]\n0, 20\n1, 30\n")
    read_config(PLATE, name="case.yaml", base=tmp_path).build()
    assert len(reads) == 1
    table.write_text("time [ms], value [degC]\n0, 20\n1, 30\n2, -300\n")
    with pytest.raises(ConfigError, match=r"row 3: .*below absolute zero"):
        read_config(PLATE, name="case.yaml", base=tmp_path).build()


@pytest.mark.parametrize("kind", [TIME, TEMPERATURE, HEAT_FLUX, LENGTH, POWER])
@pytest.mark.parametrize("unit", ["", "s", "ms", "h", "degC", "K", "kW/m^2", "mm", "MW", "inch"])
def test_a_column_has_the_bits_and_the_refusals_of_its_numbers(
    kind: Quantity, unit: str, rng: np.random.Generator
) -> None:
    texts = [f"{it:.{k % 9}g}" for k, it in enumerate(300 + 10.0 * rng.standard_normal(40))]
    for column in (texts, [*texts, " 7e-3 "], [*texts, "-400"], [*texts, "1 mm"], [*texts, "x"]):
        expected: list[float] | str = []
        for number, text in enumerate(column, 1):
            try:
                expected = [*expected, kind.read(f"{text.strip()} {unit}".strip())]
            except ValueError as error:
                expected = f"{number}: {error}"
                break
        found: list[float] | str
        try:
            found = kind.read_column(column, unit)
        except ValueError as error:
            found = str(error)
        assert found == expected


def test_plain_columns_are_not_read_number_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Quantity, "read", None)
    assert TIME.read_column(["1", " 2.5"], "ms") == [0.001, 0.0025]
    assert TEMPERATURE.read_column(["300"] * 3, "K") == [26.85] * 3


def test_a_file_of_too_many_objects_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "groups.h5"
    with h5py.File(path, "w") as file:
        for k in range(40):
            file.create_group(f"g{k}/below" if k % 2 else f"g{k}")
            file.create_dataset(f"d{k}", data=k)
    refuse_outside(path)
    monkeypatch.setattr(hdf5, "_MOST_OBJECTS", 50)
    monkeypatch.setattr(hdf5, "_survived", set())
    with pytest.raises(OutsideError, match="more than 50 groups and datasets"):
        refuse_outside(path)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((400_000_000,), "f8"), ((20_000, 20_000), "f4"), ((1000,) * 3, "i1")]
)
def test_a_packed_chunk_that_would_fill_memory_is_refused_before_it_is_read(
    shape: tuple[int, ...], dtype: str, tmp_path: Path
) -> None:
    path = tmp_path / "chunk.h5"
    with h5py.File(path, "w") as file:
        values = file.create_dataset("values", shape, dtype, chunks=shape, compression="gzip")
        values.id.write_direct_chunk((0,) * len(shape), b"cannot be unpacked")
    with pytest.raises(OutsideError, match=r"a chunk of /values has .* smaller chunks"):
        refuse_outside(path)


def test_large_chunks_that_are_not_packed_are_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "chunk.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("values", (400_000_000,), "f8", chunks=(400_000_000,))
    refuse_outside(path)
