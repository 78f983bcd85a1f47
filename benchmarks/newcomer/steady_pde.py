"""steady.yaml with py-pde."""

import numpy as np
from pde import CartesianGrid, solve_laplace_equation

grid = CartesianGrid([[0, 0.6], [0, 1]], [60, 100])
film = {"type": "mixed", "value": 750 / 52, "const": 0}
bc = {"x-": {"derivative": 0}, "x+": film, "y-": {"value": 100}, "y+": film}
np.save("answer.npy", solve_laplace_equation(grid, bc).data.T)
