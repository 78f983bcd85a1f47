"""own.yaml with py-pde."""

import numpy as np
from pde import PDE, CartesianGrid, ScalarField

grid = CartesianGrid([[0, 100]], 1000)
u = ScalarField.from_expression(grid, "(1 + exp((x - 20)/sqrt(6)))**-2")
equation = PDE({"u": "laplace(u) + u*(1 - u)"}, bc={"derivative": 0})
np.save("answer.npy", equation.solve(u, t_range=20, dt=20 / 8889, tracker=None).data)
