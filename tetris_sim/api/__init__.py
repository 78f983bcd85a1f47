"""Functions that Python programs call: run, simulate, sweep, solve_pde, thermal_diffusion and
results.
"""
