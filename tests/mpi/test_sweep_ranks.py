"""A sweep that a launcher starts: rank 0 hands out runs, the others make them."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

import pytest

from tests.mpi.test_mpiexec import command, run
from tests.unit.test_sweep import MATERIAL, TEXT, H

pytestmark = pytest.mark.mpi


def test_ranks_make_the_table_of_one_process(
    launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plate.yaml").write_text(TEXT, encoding="utf-8")
    words = ["sweep", "plate.yaml", "--over", f"{H}=10,500", "--over", f"{MATERIAL}=copper,steel"]
    done = run(launcher, 3, *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("4 runs, 0 failed: sweeps/plate/table.csv") == 1
    alone = subprocess.run(
        [*command(launcher, 1, *words)[3:], "-o", "alone"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert alone.returncode == 0, alone.stderr
    tables = []
    for folder in ("sweeps/plate", "alone"):
        with (Path(folder) / "table.csv").open() as file:
            tables.append(list(csv.DictReader(file)))
    column = "temperature mean [degC]"
    assert [row[column] for row in tables[0]] == [row[column] for row in tables[1]]
    assert [row["ended"] for row in tables[0]] == ["Done"] * 4


def test_a_mistake_is_told_once_and_ends_all_ranks(
    launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plate.yaml").write_text(TEXT, encoding="utf-8")
    done = run(launcher, 2, "sweep", "plate.yaml", "--over", f"{MATERIAL}=stel")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("did you mean 'steel'") == 1
    assert not Path("sweeps").exists()
