"""long.yaml with py-pde."""

import numpy as np
from pde import CartesianGrid, DiffusionPDE, ScalarField

grid, alpha, t_end = CartesianGrid([[0, 4], [0, 4]], 192), 2.79 / (2630 * 775), 40 * 86400.0
T = ScalarField.from_expression(grid, "10 + 50*cos(pi*x/4)*cos(pi*y/4)")
steps = int(np.ceil(t_end / (0.9 * (4 / 192) ** 2 / (4 * alpha))))
equation = DiffusionPDE(alpha, bc={"derivative": 0})
T = equation.solve(T, t_range=t_end, dt=t_end / steps, tracker=None)
np.save("answer.npy", T.data.T)
