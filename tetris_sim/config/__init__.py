"""Configurations: YAML text or Python data in, a checked `Config` or a list of all mistakes out.

Begin with `loading` (the entry points) and `sections.schema` (what each section may contain). The
sections lie below the models and the scheduler, which read them; `loading` lies above both.
Importing a section must therefore not import `loading`: the names below are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tetris_sim.errors import ConfigMistakesError

if TYPE_CHECKING:
    from tetris_sim.config.loading import Config, load_config, make_config, read_config

__all__ = ["Config", "ConfigMistakesError", "load_config", "make_config", "read_config"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    # Imported here, not above: `loading` imports the models, which import the sections (a cycle).
    from tetris_sim.config import loading

    return getattr(loading, name)
