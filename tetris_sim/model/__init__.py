"""The mathematics of a simulation, with no knowledge of machines. Begin with `problem.py`, which
joins grid, boundary and time step; `reference.py` is the NumPy oracle, and `method.py` holds the
protocols that every kernel implements.
"""
