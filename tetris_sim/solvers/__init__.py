"""Solve for a state instead of stepping to it; begin with `steady.py`."""
