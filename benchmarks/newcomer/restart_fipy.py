"""restart.yaml with FiPy: implicit steps of 0.1 s; run twice, the second goes on."""

import numpy as np
from fipy import CellVariable, DiffusionTerm, Grid2D, TransientTerm

mesh = Grid2D(nx=200, ny=150, dx=1e-3, dy=1e-3)
x, y = np.pi * mesh.cellCenters.value / [[0.2], [0.15]]
try:
    start, first = np.load("state.npy"), 25
except FileNotFoundError:
    start, first = 20 + 80 * np.cos(x) * np.cos(2 * y), 0
T = CellVariable(mesh=mesh, value=start, hasOld=True)
equation = TransientTerm() == DiffusionTerm(coeff=401 / (8933 * 385))
for _ in range(first, first + 25):
    T.updateOld()
    equation.solve(var=T, dt=0.1)
np.save("state.npy", T.value)
np.save("answer.npy", T.value.reshape(150, 200))
