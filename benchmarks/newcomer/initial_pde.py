"""initial.yaml with py-pde."""

import numpy as np
from pde import CartesianGrid, DiffusionPDE, ScalarField

grid = CartesianGrid([[0, 0.04], [0, 0.03]], [128, 96])
start = "100*sin(pi*x/0.04)*sin(pi*y/0.03) + 30*sin(3*pi*x/0.04)*sin(2*pi*y/0.03)"
equation = DiffusionPDE(401 / (8933 * 385), bc={"value": 0})
T = ScalarField.from_expression(grid, start)
T = equation.solve(T, t_range=0.2, dt=0.2 / 1062, tracker=None)
np.save("answer.npy", T.data.T)
