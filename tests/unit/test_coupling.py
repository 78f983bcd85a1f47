"""Bodies that are coupled through preCICE, by a stand-in with its interface.

The tutorial "partitioned heat conduction" of preCICE: u = 1 + x^2 + 3 y^2 + 1.2 t on two unit
squares side by side; the left one is given temperatures where they meet, the right one fluxes.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tetris_sim as ts
from tests.support import precice_stand_in
from tests.support.precice_stand_in import PARTICIPANTS, SCHEMES, Participant, Scheme
from tetris_sim.errors import ConfigError, UnsupportedError

Numbers = npt.NDArray[np.float64]
BETA = 1.2
WINDOWS, LENGTH = 4, 0.01


def exact(x: Numbers, y: Numbers, t: float) -> Numbers:
    return np.asarray(1 + x**2 + 3 * y**2 + BETA * t)


def centres(n: int) -> tuple[Numbers, Numbers]:
    at = (np.arange(n) + 0.5) / n
    y, x = np.meshgrid(at, at, indexing="ij")
    return x, y


def square(n: int, left: float, width: int = 1) -> dict[str, Any]:
    u = f"1 + (x + {left})**2 + 3*y**2"
    face = {"type": "dirichlet", "value": f"{u} + {BETA}*t"}
    return {
        "grid": {"shape": [width * n, n], "size": [width, 1]},
        "model": {
            "type": "heat",
            "conductivity": 1,
            "density": 1,
            "specific_heat": 1,
            "sources": [{"density": BETA - 2 - 6}],
        },
        "initial": {"type": "expression", "expression": u},
        "boundaries": {"*": face},
        "time": {"t_end": WINDOWS * LENGTH, "dt": 0.2 / n**2},
        "compute": {"threads": 1, "method": "cpu.plain", "tuning_budget": 0},
    }


@pytest.fixture
def adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Files of both participants, and the stand-in in place of the bindings."""
    monkeypatch.setitem(sys.modules, "precice", precice_stand_in)
    scheme = Scheme(first="Dirichlet", length=LENGTH, windows=WINDOWS, back="Temperature")
    config = str(tmp_path / "precice-config.xml")
    monkeypatch.setitem(SCHEMES, config, scheme)
    monkeypatch.setitem(PARTICIPANTS, id(scheme), ("Dirichlet", "Neumann"))
    paths = {}
    for name, reads, writes in (
        ("Dirichlet", "Temperature", "Heat-Flux"),
        ("Neumann", "Heat-Flux", "Temperature"),
    ):
        paths[name] = tmp_path / f"{name}.json"
        interface = {
            "coupling_mesh_name": f"{name}-Mesh",
            "read_data_name": reads,
            "write_data_name": writes,
        }
        paths[name].write_text(
            json.dumps(
                {
                    "participant_name": name,
                    "config_file_name": "precice-config.xml",
                    "interface": interface,
                }
            )
        )
    return paths


def side_by_side(*sides: Callable[[], Any]) -> list[Any]:
    """What each side returns, each in a thread of its own."""
    found: list[Any] = [None] * len(sides)

    def work(k: int) -> None:
        try:
            found[k] = sides[k]()
        except BaseException as error:  # noqa: BLE001 - raised below
            found[k] = error

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(sides))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for it in found:
        if isinstance(it, BaseException):
            raise it
    return found


def both(n: int, adapters: dict[str, Path]) -> tuple[ts.Coupled, ts.Coupled]:
    left, right = side_by_side(
        lambda: ts.couple(square(n, 0.0), "x+", adapters["Dirichlet"]),
        lambda: ts.couple(square(n, 1.0), "x-", adapters["Neumann"], corner=(1.0, 0.0)),
    )
    return left, right


def test_two_halves_are_the_whole(adapters: dict[str, Path]) -> None:
    n, windows = 8, 12
    step = 0.2 / n**2
    scheme = next(iter(SCHEMES.values()))
    scheme.length, scheme.windows = step, windows
    # At first the same along x, so that both sides extrapolate the same.
    begin = {
        "initial": {"type": "expression", "expression": "1 + 3*y**2"},
        "time": {"steps": windows, "dt": step},
    }
    seen: list[float] = []
    left, right = side_by_side(
        lambda: ts.couple(
            square(n, 0.0) | begin, "x+", adapters["Dirichlet"], call=lambda t, u: seen.append(t)
        ),
        lambda: ts.couple(square(n, 1.0) | begin, "x-", adapters["Neumann"], corner=(1.0, 0.0)),
    )
    assert (left.windows, right.windows) == (windows, windows)
    assert left.iterations == right.iterations > windows
    np.testing.assert_allclose(seen, step * (1 + np.arange(windows)))
    meshes = scheme.vertices["Dirichlet-Mesh"], scheme.vertices["Neumann-Mesh"]
    np.testing.assert_allclose(*meshes, rtol=0, atol=1e-12)
    np.testing.assert_allclose(meshes[0][:, 0], 1.0)

    one = ts.run(square(n, 0.0, 2) | begin, progress=False).field()
    parts = np.concatenate([left.field, right.field], axis=1)
    np.testing.assert_allclose(parts, one, rtol=0, atol=1e-8)  # what windows are repeated to


def test_the_tutorial_is_solved_to_second_order(
    adapters: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = []
    for n in (6, 12):
        scheme = Scheme(first="Dirichlet", length=LENGTH, windows=WINDOWS, back="Temperature")
        monkeypatch.setitem(SCHEMES, next(iter(SCHEMES)), scheme)
        monkeypatch.setitem(PARTICIPANTS, id(scheme), ("Dirichlet", "Neumann"))
        x, y = centres(n)
        found = both(n, adapters)
        errors.append(
            max(abs(it.field - exact(x + k, y, it.time)).max() for k, it in enumerate(found))
        )
    assert errors[1] < 0.01
    assert errors[0] / errors[1] > 3.0


def test_a_side_of_plain_numpy_gives_the_same(adapters: dict[str, Path]) -> None:
    n = 8
    ours = both(n, adapters)
    scheme = Scheme(first="Dirichlet", length=LENGTH, windows=WINDOWS, back="Temperature")
    SCHEMES[next(iter(SCHEMES))] = scheme
    PARTICIPANTS[id(scheme)] = ("Dirichlet", "Neumann")
    left, right = side_by_side(
        lambda: ts.couple(square(n, 0.0), "x+", adapters["Dirichlet"]),
        lambda: numpy_side(n, next(iter(SCHEMES))),
    )
    np.testing.assert_allclose(left.field, ours[0].field, rtol=0, atol=1e-8)
    np.testing.assert_allclose(right, ours[1].field, rtol=0, atol=1e-8)


def numpy_side(n: int, config: str) -> Numbers:
    """The right square, as somebody writes it who knows preCICE and NumPy."""
    (x, y), h = centres(n), 1 / n
    x = x + 1
    u = exact(x, y, 0.0)
    steps = int(np.ceil(LENGTH / (0.2 * h**2) * (1 - 1e-9)))
    dt, t = LENGTH / steps, 0.0

    participant = Participant("Neumann", config, 0, 1)
    mesh = "Neumann-Mesh"
    ids = participant.set_mesh_vertices(mesh, np.stack([np.ones(n), y[:, 0]], axis=1))
    participant.write_data(mesh, "Temperature", ids, u[:, 0] + (u[:, 0] - u[:, 1]) / 2)
    participant.initialize()
    while participant.is_coupling_ongoing():
        if participant.requires_writing_checkpoint():
            kept = u.copy(), t
        begin, end = (participant.read_data(mesh, "Heat-Flux", ids, at) for at in (0.0, LENGTH))
        for k in range(steps):
            now = t + (k + 0.5) * dt  # the middle of the step stands for its mean
            flux = begin + k / steps * (end - begin)
            wide = np.pad(u, 1)
            wide[1:-1, 0] = u[:, 0] + h * flux
            wide[1:-1, -1] = 2 * exact(np.full(n, 2.0), y[:, 0], now) - u[:, -1]
            wide[0, 1:-1] = 2 * exact(x[0], np.zeros(n), now) - u[0]
            wide[-1, 1:-1] = 2 * exact(x[0], np.ones(n), now) - u[-1]
            around = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]
            u = u + dt * ((around - 4 * u) / h**2 + BETA - 2 - 6)
        t += LENGTH
        participant.write_data(mesh, "Temperature", ids, u[:, 0] + h / 2 * end)
        participant.advance(LENGTH)
        if participant.requires_reading_checkpoint():
            u, t = kept
    participant.finalize()
    return u


@pytest.mark.parametrize(
    ("changes", "face", "match"),
    [
        ({}, "x", r"face is 'x'; one face is coupled"),
        (
            {
                "grid": {
                    "shape": [3, 8],
                    "size": [1, 1],
                    "graded": {"x": {"edges": [0, 0.2, 0.5, 1]}},
                }
            },
            "x+",
            "only bodies of materials with constant properties on even grids",
        ),
    ],
)
def test_what_cannot_be_coupled_is_refused(
    changes: dict[str, Any], face: str, match: str, adapters: dict[str, Path]
) -> None:
    with pytest.raises(ConfigError, match=match):
        ts.couple(square(8, 0.0) | changes, face, adapters["Dirichlet"])


def test_an_adapters_file_must_say_what_is_exchanged(adapters: dict[str, Path]) -> None:
    path = adapters["Dirichlet"]
    with pytest.raises(ConfigError, match="no adapter's configuration"):
        ts.couple(square(8, 0.0), "x+", path.with_name("nowhere.json"))
    text = path.read_text()
    path.write_text(text.replace("coupling_mesh_name", "mesh"))
    with pytest.raises(ConfigError, match="coupling_mesh_name"):
        ts.couple(square(8, 0.0), "x+", path)
    path.write_text(text.replace('"Temperature"', '"Displacement"'))
    with pytest.raises(ConfigError, match="Displacement"):
        ts.couple(square(8, 0.0), "x+", path)


def test_without_precice_it_says_what_to_install(
    adapters: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "precice", None)
    with pytest.raises(UnsupportedError, match="pip install pyprecice"):
        ts.couple(square(8, 0.0), "x+", adapters["Dirichlet"])
