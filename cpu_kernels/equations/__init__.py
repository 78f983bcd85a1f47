"""Equations: the stages of a step, for whoever sweeps or streams. Read `stages.py` first."""
