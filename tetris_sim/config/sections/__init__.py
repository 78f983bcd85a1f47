"""The sections of a configuration: their keys, types, units and defaults."""
