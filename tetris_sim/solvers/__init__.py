"""Solvers for linear systems: steady states, implicit steps and spectral propagation. Begin with
`stepper.py`, the steppers of steady and implicit solutions, and `spectral` for many steps at once;
`balance.py` sets up the linear systems, `krylov.py` and `multigrid.py` solve them.
"""
