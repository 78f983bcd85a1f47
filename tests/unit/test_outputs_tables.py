from __future__ import annotations

import errno
import io
import itertools
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.outputs_samples import (
    SALT,
    SHAPES,
    TEMPERATURE,
    FakeSnapshot,
    every,
    make_problem,
    snapshot,
    state,
)
from tetris_sim.errors import CheckpointError, ExitCode, UnsupportedError
from tetris_sim.model.boundary import Dirichlet, Fixed, Neumann, Periodic, Robin
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem
from tetris_sim.outputs import tables
from tetris_sim.outputs.regions import blocks, neighbours
from tetris_sim.outputs.tables import CsvTable, ProbeOutput, StatisticsOutput, read_table


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def open_table(path: Path, step: int = 0) -> CsvTable:
    table = CsvTable(path, ["u [1]", "v [1]"])
    table.start(step)
    return table


def rows_of(path: Path) -> list[list[float]]:
    return read_table(path)[1]


@given(values=st.lists(st.tuples(*[st.floats(allow_nan=False)] * 2), min_size=1, max_size=8))
def test_numbers_come_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[float, float]]
) -> None:
    path = tmp_path_factory.mktemp("table") / "t.csv"
    table = open_table(path)
    for step, pair in enumerate(values):
        table.append(step, step * 0.1, pair)
    table.close()
    header, rows = read_table(path)
    assert header == ["step", "time [s]", "u [1]", "v [1]"]
    for step, (row, pair) in enumerate(zip(rows, values, strict=True)):
        assert [bits(number) for number in row[1:]] == [
            bits(number) for number in (step * 0.1, *pair)
        ]
        assert row[0] == step


def test_a_row_is_in_the_file_as_soon_as_it_is_written(tmp_path: Path) -> None:
    table = open_table(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "step,time [s],u [1],v [1]\n"
    table.append(3, 0.75, (1.0, -2.5))
    assert (tmp_path / "t.csv").read_text() == "step,time [s],u [1],v [1]\n3,0.75,1.0,-2.5\n"


def test_a_restart_drops_later_rows_and_a_row_that_is_written_again_is_replaced(
    tmp_path: Path,
) -> None:
    table = open_table(tmp_path / "t.csv")
    for step in (0, 10, 20, 30):
        table.append(step, step / 10, (step, 1))
    table.close()
    table = open_table(tmp_path / "t.csv", 20)
    assert [row[0] for row in rows_of(tmp_path / "t.csv")] == [0, 10, 20]
    table.append(20, 2.0, (99, 1))
    table.append(35, 3.5, (35, 1))
    table.close()
    assert [row[:3] for row in rows_of(tmp_path / "t.csv")] == [
        [0, 0, 0],
        [10, 1, 10],
        [20, 2, 99],
        [35, 3.5, 35],
    ]


@pytest.mark.parametrize(
    "torn",
    [
        "20,2.0,5",
        "20,2.0,5.0,7",
        "20,2.0,5.0\n",
        "\0\0\0\0\0\0\n",
        "20,2.0,5.0,x\n",
        "5,2.0,5.0,7.0\n",
        "\n",
        "nan,1,2,3\n",
    ],
)
def test_what_a_kill_or_a_power_cut_tore_is_cut_off(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "t.csv"
    table = open_table(path)
    for step in (0, 10):
        table.append(step, step / 10, (step, 1))
    table.close()
    good = path.read_bytes()
    path.write_bytes(good + torn.encode())
    table = open_table(path, 100)
    assert path.read_bytes() == good
    table.append(30, 3.0, (1, 2))
    table.close()
    assert [row[0] for row in rows_of(path)] == [0, 10, 30]


def test_every_cut_of_the_file_leaves_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    table = open_table(path)
    for step in range(5):
        table.append(step, step / 10, (step, 1))
    table.close()
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    for length in range(header, len(whole)):
        path.write_bytes(whole[:length])
        open_table(path, 100).close()
        kept = path.read_bytes()
        assert whole.startswith(kept)
        assert kept.endswith(b"\n")
        assert length - len(kept) < len(b"0,0.0,0.0,1.0\n")


def test_at_step_0_the_table_begins_anew_and_an_empty_file_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("something else\n1,2,3\n")
    open_table(path, 0).close()
    assert path.read_text() == "step,time [s],u [1],v [1]\n"
    path.write_text("")
    open_table(path, 5).close()
    assert path.read_text() == "step,time [s],u [1],v [1]\n"


def test_a_table_with_other_columns_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("step,time [s],w [1]\n0,0.0,1.0\n")
    with pytest.raises(CheckpointError, match="other columns"):
        open_table(path, 5)
    assert path.read_text() == "step,time [s],w [1]\n0,0.0,1.0\n"


def test_a_full_disk_leaves_whole_rows_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "probes" / "t.csv"
    table = open_table(path)
    table.append(0, 0.0, (1, 2))
    good = path.read_bytes()

    class Nearly(io.FileIO):
        """A file on a disk with room for four more bytes."""

        def write(self, data: Any) -> int:
            if self.tell() >= len(good) + 4:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data[:4])

    raw = Nearly(path, "r+")
    raw.seek(0, io.SEEK_END)
    monkeypatch.setattr(table, "_file", raw)
    with pytest.raises(
        UnsupportedError, match=r"t\.csv cannot be written: disk full; \d+ bytes are free"
    ) as caught:
        table.append(10, 1.0, (3, 4))
    assert caught.value.exit_code == ExitCode.RESOURCES
    assert path.read_bytes() == good
    table.close()


def linear(problem: Problem, coefficients: tuple[float, ...]) -> FakeSnapshot:
    """A state that is linear in the coordinates, which linear interpolation gives back."""
    values = np.zeros(problem.state_shape)
    for axis, slope in enumerate(coefficients):
        shape = [-1 if k == axis else 1 for k in range(problem.grid.ndim)]
        values += slope * problem.grid.coordinates(axis).reshape(shape)
    return FakeSnapshot(problem, 0, values)


def probe(
    problem: Problem, directory: Path, position: tuple[float, ...], taken: FakeSnapshot
) -> list[float]:
    output = ProbeOutput(problem, directory, "p", position=position, schedule=every(10, problem))
    output.start(0)
    output.write(taken)
    output.flush()
    output.close()
    return rows_of(directory / "probes" / "p.csv")[0]


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_probe_is_linear_between_the_points_around_it(
    tmp_path: Path, ndim: int, rng: np.random.Generator
) -> None:
    problem = make_problem(SHAPES[ndim])
    grid, slopes = problem.grid, (300.0, -70.0, 11.0)[:ndim]
    for _ in range(20):
        inner = [
            (p + 1e-12, p + (n - 1) * h)
            for p, h, n in zip(grid.origin, grid.spacing, grid.shape, strict=True)
        ]
        position = tuple(float(rng.uniform(low, high)) for low, high in inner)
        taken = linear(problem, slopes)
        row = probe(problem, tmp_path, position, taken)
        expected = sum(slope * place for slope, place in zip(slopes, position, strict=True))
        largest = float(np.abs(taken.values).max())
        assert row[2] == pytest.approx(expected, rel=0, abs=16 * np.finfo(float).eps * largest)
        assert taken.largest <= 2**ndim * 8  # only the points around it are fetched


def test_a_probe_on_a_point_has_the_point_s_bits(tmp_path: Path) -> None:
    problem = make_problem((4, 8), (4.0, 8.0), variables=(TEMPERATURE, SALT), dtype="float32")
    taken = snapshot(problem, 10)
    row = probe(problem, tmp_path, (1.5, 5.5), taken)
    assert row == [10, 5.0, float(taken.values[0, 1, 5]), float(taken.values[1, 1, 5])]
    assert taken.boxes == [((1, 2), (5, 6))]


def test_between_the_outermost_point_and_an_insulated_face_the_nearest_point_counts(
    tmp_path: Path,
) -> None:
    problem = make_problem((4, 8), (4.0, 8.0))
    taken = snapshot(problem, 0)
    assert probe(problem, tmp_path, (0.25, 8.0), taken)[2] == taken.values[0, 0, 7]
    assert probe(problem, tmp_path, (4.0, 0.0), taken)[2] == taken.values[0, 3, 0]


def test_on_a_face_a_probe_reads_what_the_condition_there_says(tmp_path: Path) -> None:
    u = snapshot(make_problem((4, 8), (4.0, 8.0)), 0).values[0]

    def on_the_face(face: Any, place: float = 0.0) -> float:
        problem = make_problem((4, 8), (4.0, 8.0), face=face)
        return probe(problem, tmp_path, (1.5, place), snapshot(problem, 0))[2]

    assert on_the_face(Dirichlet(3.0)) == on_the_face(Dirichlet(3.0), 8.0) == 3.0
    assert on_the_face(Dirichlet(3.0), 0.25) == pytest.approx((3.0 + u[1, 0]) / 2)
    assert on_the_face(Fixed(3.0)) == pytest.approx((3.0 + u[1, 0]) / 2)
    assert on_the_face(Neumann(6.0, 2.0)) == pytest.approx(u[1, 0] + 0.5 * 6.0 / 2.0)
    # Half a cell of conductivity k and the film h in series.
    k, h, ambient = 2.0, 5.0, -7.0
    flux = (ambient - u[1, 7]) / (0.5 / k + 1 / h)
    assert on_the_face(Robin(h, ambient, k), 8.0) == pytest.approx(ambient - flux / h)


def test_in_a_corner_a_probe_is_of_second_order(tmp_path: Path) -> None:
    errors = []
    for n in (8, 16, 32):
        problem = make_problem((n, n + 2), (1.0, 1.0), face=Robin(3.0, 0.5, 2.0))
        x, y = (problem.grid.coordinates(axis) for axis in (1, 0))

        # The product of two solutions of k du/dn = h (T - u), less T, on both faces at 0.
        def wave(z: Any) -> Any:
            return np.cos(z) + 1.5 * np.sin(z)

        values = (0.5 + wave(y)[:, None] * wave(x)[None, :])[None]
        row = probe(problem, tmp_path, (0.0, 0.0), FakeSnapshot(problem, 0, values))
        errors.append(abs(row[2] - 1.5))
    assert errors[0] < 0.01
    assert all(coarse / fine > 3.5 for coarse, fine in itertools.pairwise(errors))


def test_on_a_periodic_axis_the_first_and_the_last_point_are_neighbours(tmp_path: Path) -> None:
    problem = make_problem((4, 8), (4.0, 8.0), face=Periodic())
    u = state(problem, 0)[0]
    row = probe(problem, tmp_path, (0.25, 7.75), snapshot(problem, 0))
    upper = 0.75 * u[0, 7] + 0.25 * u[0, 0]
    lower = 0.75 * u[3, 7] + 0.25 * u[3, 0]
    assert row[2] == pytest.approx(0.75 * upper + 0.25 * lower, rel=1e-14)


@given(
    n=st.integers(1, 9),
    place=st.floats(0, 1),
    periodic=st.booleans(),
    spacing=st.floats(1e-6, 1e3),
)
def test_the_weights_of_a_probe_are_shares_of_points_of_the_grid(
    n: int, place: float, periodic: bool, spacing: float
) -> None:
    grid = Grid.box((n,), (n * spacing,))
    found = neighbours(grid.index_at(0, place * n * spacing), n=n, periodic=periodic)
    assert all(0 <= index < n for index in found.indices)
    assert all(0 <= weight <= 1 for weight in found.weights)
    assert sum(found.weights) == pytest.approx(1, abs=1e-15)
    assert len(set(found.indices)) == len(found.indices) == len(found.weights)


def test_probes_have_a_column_with_its_unit_for_every_variable(tmp_path: Path) -> None:
    problem = make_problem(variables=(TEMPERATURE, SALT))
    probe(problem, tmp_path, (0.1, 0.1), snapshot(problem, 0))
    header, _ = read_table(tmp_path / "probes" / "p.csv")
    assert header == ["step", "time [s]", "temperature [degC]", "salt [kg/m^3]"]


def statistics_row(problem: Problem, directory: Path, taken: FakeSnapshot) -> list[float]:
    output = StatisticsOutput(problem, directory, every(10, problem))
    output.start(0)
    output.write(taken)
    output.flush()
    output.close()
    return rows_of(directory / "statistics.csv")[0]


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_statistics_are_those_of_exact_sums(tmp_path: Path, ndim: int, dtype: str) -> None:
    problem = make_problem(SHAPES[ndim], variables=(TEMPERATURE, SALT), dtype=dtype)
    taken = snapshot(problem, 10)
    row = statistics_row(problem, tmp_path, taken)
    expected = [10.0, 5.0]
    for k, variable in enumerate(problem.variables):
        numbers = [float(number) for number in taken.values[k].ravel()]
        total = math.fsum(numbers)
        volume = math.prod(problem.grid.spacing)
        expected += [
            min(numbers),
            max(numbers),
            total / len(numbers),
            variable.total.density * volume * total,
        ]
    np.testing.assert_allclose(row, expected, rtol=4 * np.finfo(float).eps)
    header, _ = read_table(tmp_path / "statistics.csv")
    assert header[2:6] == [
        "temperature min [degC]",
        "temperature max [degC]",
        "temperature mean [degC]",
        "temperature heat [J]",
    ]


def test_with_one_variable_the_total_has_its_own_name(tmp_path: Path) -> None:
    statistics_row(make_problem(), tmp_path, snapshot(make_problem(), 0))
    assert read_table(tmp_path / "statistics.csv")[0][5] == "heat [J]"


def test_small_numbers_are_not_lost_beside_large_ones(tmp_path: Path) -> None:
    problem = make_problem((5, 4096), (5.0, 4096.0))
    values = np.ones(problem.state_shape)
    values[0, 0], values[0, 4] = 0.0, 0.0
    values[0, 0, 17], values[0, 4, 23] = 1e20, -1e20
    row = statistics_row(problem, tmp_path, FakeSnapshot(problem, 0, values))
    assert row[4] == 3 * 4096 / (5 * 4096)
    assert float(values.sum()) != 3 * 4096  # what a plain sum makes of it


def test_statistics_do_not_depend_on_how_the_state_is_fetched(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem((60, 70), variables=(TEMPERATURE, SALT))
    taken = FakeSnapshot(problem, 0, rng.standard_normal(problem.state_shape) * 1e3)
    whole = statistics_row(problem, tmp_path / "a", taken)
    limit = problem.state_bytes // 7
    monkeypatch.setattr(tables, "blocks", lambda *args: blocks(*args, limit=limit))
    by_block = FakeSnapshot(
        problem, 0, np.asfortranarray(taken.values)
    )  # and in another order in memory
    np.testing.assert_allclose(statistics_row(problem, tmp_path / "b", by_block), whole, rtol=1e-13)
    assert by_block.largest <= limit
    assert statistics_row(problem, tmp_path / "c", by_block) == statistics_row(
        problem, tmp_path / "d", taken
    )


def test_nan_is_passed_on(tmp_path: Path) -> None:
    problem = make_problem()
    values = state(problem, 0)
    values[0, 4, 7] = np.nan
    with np.errstate(invalid="ignore"):
        row = statistics_row(problem, tmp_path, FakeSnapshot(problem, 0, values))
    assert all(math.isnan(number) for number in row[2:])


def test_a_table_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(CheckpointError, match="no table written by tetris_sim"):
        read_table(tmp_path / "x.csv")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_table(tmp_path / "missing.csv")
