"""Passes of a multigrid solver over memory; read `sweeps.py` first."""
