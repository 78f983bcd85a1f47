"""radiation.yaml with py-pde: stepped until nothing changes; a face sees the value of its cell."""

import numpy as np
from pde import CartesianGrid, DiffusionPDE, ScalarField

grid, alpha = CartesianGrid([[0, 0.1]], 100), 55.563 / (7850 * 460)
out = {"derivative_expression": "-0.98 * 5.670374419e-8 * (value**4 - 300**4) / 55.563"}
equation = DiffusionPDE(alpha, bc={"x-": {"value": 1000}, "x+": out})
T = equation.solve(ScalarField(grid, 1000.0), t_range=3000, dt=0.45e-6 / alpha, tracker=None)
np.save("answer.npy", T.data - 273.15)
