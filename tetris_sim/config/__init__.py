"""What was asked: a text or Python data becomes a checked `Config`, or a list of all mistakes."""

from __future__ import annotations

from tetris_sim.config.errors import ConfigMistakesError
from tetris_sim.config.loading import Config, load_config, make_config, read_config

__all__ = ["Config", "ConfigMistakesError", "load_config", "make_config", "read_config"]
