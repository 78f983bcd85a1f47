"""What `plan --json` says, without what was measured or depends on where it runs."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from . import body_cases, stencil_cases
from .digests import (
    Case,
    Config,
    as_yaml,
    command,
    merged,
    of_data,
    settled,
    without_numbers,
)

_MEASURED = ("seconds", "memory_available_bytes", "profile", "memory_bytes")
_OF_WORKER = ("device", "points_per_second", "predicted_idle", "streamed")
_OF_FILES = ("directory", "free_bytes")
_OUTPUT: Config = {
    "fields": {"every": "5 steps"},
    "statistics": {"every": "4 steps"},
    "pictures": False,
}


def cases() -> Iterator[Case]:
    """Key and call of each."""
    for key, config in configurations():
        yield f"plans/{key}", partial(planned, config)


def configurations() -> Iterator[tuple[str, Config]]:
    """Key and configuration of each."""
    for name in stencil_cases.STENCILS:
        for method in ("auto", *stencil_cases.METHODS):
            for team, compute in stencil_cases.TEAMS.items():
                asked = {"method": method, **compute}
                config = stencil_cases.stencil_config(name, "mixed", asked)
                yield f"{name}/{method}/{team}", merged(config, {"output": _OUTPUT})
    for name in stencil_cases.STENCILS:
        asked = {"devices": "cpu", "threads": 1, "precision": "float16", "method": "auto"}
        yield f"{name}/float16", stencil_cases.stencil_config(name, "periodic", asked)
    for ndim in (1, 2, 3):
        for team, compute in stencil_cases.TEAMS.items():
            for block in (1, 4, 9):
                asked = {"time_block": block, **compute}
                config = stencil_cases.heat_config(ndim, "changing", asked)
                yield f"heat {ndim}D/{team}/block {block}", config
    simulated = {"devices": ["cpu", "simulated:0"], "threads": 2, "shares": [2, 1]}
    for name, config in {**body_cases.BODIES, **body_cases.EQUATIONS, **body_cases.SOLVED}.items():
        for team, compute in {**stencil_cases.TEAMS, "simulated": simulated}.items():
            if name in body_cases.SOLVED and team == "2 threads":
                continue
            yield f"{name}/{team}", merged(config, {"compute": compute})


def planned(config: Config) -> str:
    """Digests of what is planned and of what is said of it."""
    with tempfile.TemporaryDirectory(prefix="tetris_sim_evidence_") as folder:
        path = Path(folder) / "it.yaml"
        path.write_text(as_yaml(config))
        words = ("plan", str(path), "--json", "--no-cache")
        answer = command(*words, "--set", f"output.directory={folder}/results")
    if answer.code != 0:
        return settled(answer.text())
    facts = json.loads(answer.out)
    plain = stripped(facts)
    said = [*facts["reasons"], *facts["notes"]]
    words_digest = of_data([without_numbers(text) for text in said])
    methods = ", ".join(f"{it['method']} {it['parameters']}" for it in facts["workers"])
    return f"{methods}; plan {of_data(plain)}; said {words_digest}"


def stripped(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts that are the same each time."""
    plain = copy.deepcopy(facts)
    for key in (*_MEASURED, "reasons", "notes"):
        plain.pop(key, None)
    for worker in plain["workers"]:
        for key in _OF_WORKER:
            worker.pop(key, None)
    for key in _OF_FILES:
        plain["files"].pop(key, None)
    for scheme in plain["schemes"].values():
        scheme["seconds"] = None
        scheme["why_not"] = scheme["why_not"] and without_numbers(scheme["why_not"])
    if plain["equations"] is not None:
        plain["equations"].pop("expected", None)
    return plain
