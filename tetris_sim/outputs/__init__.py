"""Outputs of a running simulation: fields, probes, statistics, pictures, checkpoints.

Begin with `output` (the protocols between the run loop and all outputs) and `make` (the outputs of
a configuration). `fields`, `tables`, `pictures` and `checkpoint` write; `series` reads back.
"""
