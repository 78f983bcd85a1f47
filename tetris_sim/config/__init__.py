"""What was asked: a text or Python data becomes a checked `Config`, or a list of all mistakes.

The sections, which say what may be asked, lie below the models and the scheduler that read them;
`loading` lies above both. So importing a section must not import `loading`: the names below are
loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tetris_sim.config.errors import ConfigMistakesError
    from tetris_sim.config.loading import Config, load_config, make_config, read_config

__all__ = ["Config", "ConfigMistakesError", "load_config", "make_config", "read_config"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from tetris_sim.config import errors, loading

    return getattr(errors if name == "ConfigMistakesError" else loading, name)
