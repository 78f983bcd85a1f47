"""sweep.yaml with py-pde."""

import numpy as np
from pde import CartesianGrid, DiffusionPDE, ScalarField

grid = CartesianGrid([[0, 0.05]], 50)
found = []
for h in np.linspace(50, 600, 12):
    film = {"type": "mixed", "value": h / 60.5, "const": h / 60.5 * 20}
    bc = {"x-": {"derivative": 0}, "x+": film}
    equation = DiffusionPDE(60.5 / (7854 * 434), bc=bc)
    T = equation.solve(ScalarField(grid, 100.0), t_range=600, dt=600 / 23666, tracker=None)
    found.append(T.data.max())
np.save("answer.npy", found)
