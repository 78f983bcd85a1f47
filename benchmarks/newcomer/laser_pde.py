"""laser.yaml with py-pde."""

import numpy as np
from pde import CartesianGrid, DiffusionPDE, ScalarField

grid = CartesianGrid([[0, 3e-3], [0, 1e-3], [0, 1e-3]], [75, 25, 25])
beam = "2*35/(pi*2e-4**2)/24 * exp(-2*((x - 0.5e-3 - 0.1*t)**2 + y**2)/2e-4**2)"
bc = {"*": {"derivative": 0}, "z+": {"derivative_expression": beam}}
equation = DiffusionPDE(24 / (8000 * 650), bc=bc)
T = equation.solve(ScalarField(grid, 25.0), t_range=15e-3, dt=15e-3 / 289, tracker=None)
np.save("answer.npy", T.data.T)
