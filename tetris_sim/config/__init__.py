"""What was asked: a YAML text or Python data becomes one checked `Config`, or one error that lists
every mistake.
"""

from __future__ import annotations

from tetris_sim.config.errors import ConfigMistakesError
from tetris_sim.config.loading import Config, load_config, make_config, read_config

__all__ = ["Config", "ConfigMistakesError", "load_config", "make_config", "read_config"]
