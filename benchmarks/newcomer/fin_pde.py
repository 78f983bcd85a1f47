"""fin.yaml with py-pde."""

import numpy as np
from pde import CartesianGrid, solve_laplace_equation

grid = CartesianGrid([[0, 0.05], [0, 1e-3]], [200, 8])
film = {"type": "mixed", "value": 50 / 237, "const": 50 / 237 * 20}
bc = {"x-": {"value": 100}, "x+": {"derivative": 0}, "y-": {"derivative": 0}, "y+": film}
np.save("answer.npy", solve_laplace_equation(grid, bc).data.T)
