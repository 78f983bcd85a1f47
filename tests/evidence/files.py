"""Checkpoints, outputs and sweeps: what they hold, and that old checkpoints are continued."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import tetris_sim as ts

from . import body_cases, stencil_cases
from .digests import (
    Case,
    Config,
    as_yaml,
    merged,
    of_array,
    of_text,
    outcome,
    settled,
)

BEGUN, ENDED = 8, 17  # steps behind a golden checkpoint, and those of the whole run
_ONE = {"devices": "cpu", "threads": 1, "method": "cpu.plain"}
_TIME_BLOCK = re.compile(r'"time_block": \d+')  # of one worker it follows its speed
_UNSTEADY = ("created", "creator", "run_id", "wall_time_s", "versions", "title")


def runs() -> dict[str, Config]:
    """What is saved and continued, one of each model."""
    steps = {"time": {"steps": BEGUN}, "compute": _ONE, "output": {"pictures": False}}
    stencil = stencil_cases.stencil_config("box-2d9p", "mixed", {})
    return {
        "stencil": merged(stencil, steps),
        "body": merged(body_cases.PLATE, steps),
        "melting": merged(body_cases.MELTING, steps),
        "equations": merged(body_cases.GRAY_SCOTT, steps),
        "wave": merged(body_cases.WAVE, steps),
    }


def cases() -> Iterator[Case]:
    """Key and call of each; what a checkpoint holds is many texts, which are joined."""
    for name, config in runs().items():
        yield f"checkpoints/{name}", partial(_held, config)
        yield f"checkpoints/{name} continued", partial(_in_two_parts, config)
        yield f"results/outputs/{name}", partial(_written, config)
    yield "results/sweep/initial", partial(_swept, {"initial.sigma": ["1 mm", "2 mm", "3 mm"]})
    yield "results/sweep/faces", partial(_swept, {"boundaries.x-.value": [10, 20]})


def checkpoint_of(config: Config, folder: Path) -> Path:
    """Run to the end and leave its checkpoint."""
    ts.run(config, folder, progress=False, overwrite=True)
    found: Path = max((folder / "checkpoints").glob("checkpoint_*.h5"))
    return found


def continued(config: Config, checkpoint: Path, folder: Path) -> str:
    """The digest of the state after the rest of the steps."""
    changes = {"time.steps": ENDED}
    result = ts.run(config, folder, changes=changes, progress=False, resume=str(checkpoint))
    last = max((folder / "checkpoints").glob("checkpoint_*.h5"))
    del result
    with h5py.File(last) as file:
        fields = file["fields"]
        names = json.loads(file["meta"].attrs["variables"])
        return "; ".join(f"{name} {of_array(fields[name][()])}" for name in names)


def make_golden(folder: Path) -> None:
    """Write checkpoints of today, their configurations, and what comes out of them."""
    folder.mkdir(parents=True, exist_ok=True)
    digests = {}
    for name, config in runs().items():
        with tempfile.TemporaryDirectory(prefix="tetris_sim_evidence_") as temporary:
            made = checkpoint_of(config, Path(temporary) / "first")
            shutil.copyfile(made, folder / f"{name}.h5")
            (folder / f"{name}.yaml").write_text(as_yaml(config))
        digests[f"restarts/{name}"] = _restarted(folder, name)
    (folder / "golden.json").write_text(json.dumps(digests, indent=1, sort_keys=True) + "\n")


def restart_cases(folder: Path) -> Iterator[Case]:
    """Go on from the checkpoints of a folder that `make_golden` wrote."""
    for path in sorted(folder.glob("*.yaml")):
        yield f"restarts/{path.stem}", partial(_restarted, folder, path.stem)


def golden_digests(folder: Path) -> dict[str, str]:
    """What came out when the checkpoints were written."""
    found: dict[str, str] = json.loads((folder / "golden.json").read_text())
    return found


def _restarted(folder: Path, name: str) -> str:
    config = json.loads((folder / f"{name}.yaml").read_text())
    with tempfile.TemporaryDirectory(prefix="tetris_sim_evidence_") as temporary:
        return continued(config, (folder / f"{name}.h5").absolute(), Path(temporary) / "on")


def _in_two_parts(config: Config) -> str:
    def both() -> str:
        with tempfile.TemporaryDirectory(prefix="tetris_sim_evidence_") as temporary:
            first = checkpoint_of(config, Path(temporary) / "first")
            return continued(config, first, Path(temporary) / "on")

    return outcome(both)


def _held(config: Config) -> str:
    def look() -> str:
        with tempfile.TemporaryDirectory(prefix="tetris_sim_evidence_") as temporary:
            path = checkpoint_of(config, Path(temporary) / "first")
            with h5py.File(path) as file:
                return json.dumps(_contents(file, temporary), sort_keys=True)

    return _whole(look)


def _whole(make: Any) -> str:
    """The text in full, or why there is none."""
    try:
        return str(make())
    except Exception as error:  # noqa: BLE001  an error is evidence, too
        return settled(f"{type(error).__name__}: {error}")


def _contents(file: Any, temporary: str) -> dict[str, str]:
    """Names of all things and attributes, with the values that are the same each time."""
    found: dict[str, str] = {}

    def note(name: str, thing: Any) -> None:
        if isinstance(thing, h5py.Dataset):
            value = thing[()]
            found[name] = (
                of_array(value)
                if isinstance(value, np.ndarray) and value.dtype.kind in "fiu"
                else of_text(_as_text(value).replace(temporary, ""))
            )
        for key, value in thing.attrs.items():
            lasting = key not in _UNSTEADY and not key.endswith("_LIST")
            found[f"{name}@{key}"] = _as_text(value)[:100] if lasting else ""

    note("", file)
    file.visititems(note)
    for name in ("meta/methods", "meta/outputs"):
        if name in found:
            text = _TIME_BLOCK.sub('"time_block": #', _as_text(file[name][()]))
            found[name] = text[:300].replace(temporary, "")
    return found


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    return str(value)


def _written(config: Config) -> str:
    ends = config["grid"]["shape"]
    at = [0.3 * n * h for n, h in zip(ends, _spacing(config), strict=True)]
    output = {
        "fields": {"every": "3 steps"},
        "statistics": {"every": "2 steps"},
        "probes": [{"at": at, "every": "2 steps", "name": "here"}],
        "parts": [{"name": "cut", "every": "4 steps", "slice": {"x": at[0]}}],
    }

    def look() -> str:
        with tempfile.TemporaryDirectory(prefix="tetris_sim_evidence_") as temporary:
            folder = Path(temporary) / "it"
            ts.run(merged(config, {"output": output}), folder, progress=False)
            return json.dumps(dict(_digests(folder)), sort_keys=True)

    return _whole(look)


def _spacing(config: Config) -> list[float]:
    grid = ts.make_config(config).build().grid
    return [float(h) for h in reversed(grid.spacing)]


def _digests(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix in (".csv", ".xdmf"):
            yield name, of_text(path.read_text())
        elif path.suffix == ".h5" and path.parent.name.startswith("fields"):
            with h5py.File(path) as file:
                read = {it: file[it] for it in file if isinstance(file[it], h5py.Dataset)}
                yield name, of_text("; ".join(f"{it} {of_array(read[it][()])}" for it in read))
        elif path.name == "report.json":
            yield name, ", ".join(sorted(json.loads(path.read_text())))
        elif path.is_file():
            yield name, "there"


def _swept(over: Mapping[str, list[Any]]) -> str:
    plate = {
        "grid": {"shape": [37, 29], "size": ["15 mm", "12 mm"]},
        "model": {"type": "heat", "material": "copper"},
        "initial": {"type": "gaussian", "amplitude": 100, "sigma": "2 mm"},
        "boundaries": {"x-": {"type": "dirichlet", "value": 20}, "*": {"type": "neumann"}},
        "time": {"dt": "auto", "steps": 13},
        "compute": {"tuning_budget": 0, "devices": "cpu", "threads": 1},
        "output": {"fields": {"every": "13 steps"}, "statistics": {"every": "13 steps"}},
    }

    def look() -> str:
        with tempfile.TemporaryDirectory(prefix="tetris_sim_evidence_") as temporary:
            found = ts.sweep(plate, over, directory=Path(temporary) / "it", processes=1)
            states = [
                of_array(ts.open_result(found.directory / "runs" / f"{n + 1:04d}").field())
                for n in range(len(found.rows))
            ]
            columns = ", ".join(sorted(found.rows[0]))
            return f"exit {found.exit_code}; {'; '.join(states)}; {columns}"

    return outcome(look)
