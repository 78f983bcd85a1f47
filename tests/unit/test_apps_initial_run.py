"""A run that begins with what another one left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.body_samples import settings, start
from tetris_sim.__main__ import main
from tetris_sim.config import ConfigMistakesError, make_config
from tetris_sim.config.yaml import write_yaml
from tetris_sim.errors import ConfigError
from tetris_sim.model.problem import Problem

GRID = {"shape": [12, 10], "size": [1.2, 1.0]}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 6 steps with fields of every other one and a checkpoint at the end."""
    folder = tmp_path_factory.mktemp("earlier")
    path = folder / "on.yaml"
    values = settings(
        grid=GRID,
        initial={"type": "random", "high": 9, "seed": 4},
        time={"dt": 1e-3, "steps": 6},
        compute={"method": "cpu.plain", "devices": "cpu", "threads": 1, "tuning_budget": 0},
        output={
            "directory": str(folder / "on"),
            "pictures": False,
            "fields": {"every": "2 steps"},
        },
    )
    path.write_text(write_yaml(values))
    assert main(["run", str(path), "--quiet"]) == 0
    return folder / "on"


def later(earlier: Path, grid: Any = GRID, **keys: Any) -> Problem:
    initial = {"type": "run", "from": str(earlier), **keys}
    faces = {"*": {"type": "dirichlet", "value": "t"}}
    return make_config(settings(grid=grid, initial=initial, boundaries=faces)).build()


def field(earlier: Path, step: int) -> np.ndarray[Any, Any]:
    import h5py

    with h5py.File(earlier / f"fields/fields_{step:012d}.h5") as file:
        return np.asarray(file["temperature"])


def test_the_last_state_and_that_of_a_time(earlier: Path) -> None:
    np.testing.assert_array_equal(start(later(earlier)), field(earlier, 6))
    np.testing.assert_array_equal(start(later(earlier, at="4 ms")), field(earlier, 4))
    with pytest.raises(ConfigError, match=r"nothing of t = 0\.003 s; the nearest is of 0\.00[24]"):
        later(earlier, at=3e-3)


def test_a_checkpoint_is_enough(earlier: Path, tmp_path: Path) -> None:
    (tmp_path / "only").mkdir()
    (tmp_path / "only/checkpoints").symlink_to(earlier / "checkpoints")
    np.testing.assert_array_equal(start(later(tmp_path / "only")), field(earlier, 6))


def test_runs_that_do_not_fit_are_refused(earlier: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"initial\.from: .* shape \(10, 12\)"):
        later(earlier, grid={"shape": [10, 12], "size": [1, 1]})
    with pytest.raises(ConfigError, match="there is no folder"):
        later(tmp_path / "none")
    with pytest.raises(ConfigError, match="neither fields nor a checkpoint"):
        later(tmp_path)
    with pytest.raises(ConfigMistakesError, match=r"initial\.at: 'frist' was found"):
        later(earlier, at="frist")
