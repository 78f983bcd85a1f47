"""What a file says about the run that wrote it: its numbers can be had again years later."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from tetris_sim.config.sections.schema import Request
from tetris_sim.config.yaml import write_yaml
from tetris_sim.version import __version__

CREATOR = f"tetris_sim {__version__}"


@dataclass(frozen=True)
class Provenance:
    """Where numbers come from.

    Attributes:
        config: the resolved configuration as YAML; loading it again gives the same run.
        title: the configuration's title; may be empty.
        run_id: what tells this run from others; empty if it has none.
        versions: of the packages that decide about numbers and files.
    """

    config: str
    title: str
    run_id: str
    versions: dict[str, str]


def make_provenance(request: Request, run_id: str = "") -> Provenance:
    """What this run's files say about it."""
    return Provenance(
        config=write_yaml(request.resolved()),
        title=request.title,
        run_id=run_id,
        versions={
            "tetris_sim": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "numba", "h5py")},
        },
    )


def write_meta(file: Any, provenance: Provenance) -> Any:
    """Write the group `/meta` of an HDF5 file; returns it so that more can be said there."""
    meta = file.create_group("meta")
    # A dataset, as attributes end at 64 KiB.
    meta.create_dataset("config", data=provenance.config)
    meta.attrs["title"] = provenance.title
    meta.attrs["run_id"] = provenance.run_id
    meta.attrs["versions"] = json.dumps(provenance.versions)
    return meta
