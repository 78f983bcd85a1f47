"""Fields that are packed with LZ4 or Zstd, and what a computer without hdf5plugin says of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.outputs_samples import SALT, TEMPERATURE, make_problem, state, write_fields
from tetris_sim.errors import UnsupportedError
from tetris_sim.outputs.series import open_fields
from tetris_sim.support import hdf5

pytest.importorskip("hdf5plugin")
BOTH = (TEMPERATURE, SALT)
FILTERS = {"lz4": 32004, "zstd": 32015}
# Reads all fields of a file that another process has written, perhaps without hdf5plugin.
READ = """
import sys
from pathlib import Path
if sys.argv[2] == "without":
    sys.modules["hdf5plugin"] = None
from tetris_sim.outputs.series import open_fields
with open_fields(Path(sys.argv[1])) as series:
    box = tuple((0, n) for n in series.grid.shape)
    print(float(series.read(1, 0, box).sum()))
"""


@pytest.mark.parametrize("compression", FILTERS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_packed_fields_are_smaller_and_have_every_bit(
    compression: str, dtype: str, tmp_path: Path
) -> None:
    problem = make_problem((40, 300), variables=BOTH, dtype=dtype)
    write_fields(problem, tmp_path, compression=compression)
    with h5py.File(tmp_path / "fields" / "fields_000000000020.h5") as file:
        for k, variable in enumerate(BOTH):
            dataset = file[variable.name]
            pipeline = dataset.id.get_create_plist()
            used = {pipeline.get_filter(j)[0] for j in range(pipeline.get_nfilters())}
            assert used == {2, FILTERS[compression]}
            assert dataset.id.get_storage_size() < 0.97 * dataset.nbytes
            np.testing.assert_array_equal(dataset[0], state(problem, 20)[k])
    with open_fields(tmp_path / "fields.h5") as series:
        box = tuple((0, n) for n in problem.grid.shape)
        np.testing.assert_array_equal(series.read(2, 1, box), state(problem, 40)[1])


@pytest.mark.parametrize("name", ["fields.h5", "fields/fields_000000000020.h5"])
def test_another_process_reads_them_or_says_what_it_needs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem((40, 300))
    write_fields(problem, tmp_path, compression="zstd")
    # netCDF4 tells HDF5 of filters of its own once something has imported it.
    monkeypatch.delenv("HDF5_PLUGIN_PATH", raising=False)
    words = [sys.executable, "-c", READ.replace("read(1", "read(0"), str(tmp_path / name)]
    done = subprocess.run([*words, "with"], capture_output=True, text=True, check=False)
    step = 0 if name == "fields.h5" else 20
    assert float(done.stdout) == float(state(problem, step)[0].sum()), done.stderr
    done = subprocess.run([*words, "without"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    said = done.stderr.splitlines()[-1]
    assert "UnsupportedError" in said
    assert "pip install 'tetris-sim[compression]'" in said


@pytest.mark.parametrize("compression", FILTERS)
def test_without_hdf5plugin_a_run_ends_before_it_begins(
    compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hdf5plugin", None)
    hdf5.load_filters.cache_clear()
    with pytest.raises(UnsupportedError, match=f"{compression} needs hdf5plugin.*pip install"):
        hdf5.refuse_missing(compression)
    for other in ("none", "gzip"):
        hdf5.refuse_missing(other)
    hdf5.load_filters.cache_clear()


@pytest.mark.parametrize("compression", FILTERS)
def test_damaged_pieces_are_an_error_and_nothing_worse(compression: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    values = np.sin(np.arange(4096) / 50)
    good: bytes | None = None
    for attempt in range(300):
        path = tmp_path / f"{attempt}.h5"
        with h5py.File(path, "w") as file:
            options = hdf5.packed(compression, values.shape)
            dataset = file.create_dataset("u", values.shape, float, **options)
            if good is None:
                dataset[...] = values
                good = dataset.id.read_direct_chunk((0,))[1]
            piece = np.frombuffer(good, np.uint8).copy()
            for _ in range(rng.integers(1, 5)):
                piece[rng.integers(32 if rng.random() < 0.5 else piece.size)] = rng.integers(256)
            dataset.id.write_direct_chunk((0,), piece[: rng.integers(1, piece.size + 1)].tobytes())
        with h5py.File(path) as file:
            try:
                assert file["u"][...].shape == values.shape
            except (OSError, RuntimeError, MemoryError):
                continue
