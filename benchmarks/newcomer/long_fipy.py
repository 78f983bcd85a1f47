"""long.yaml with FiPy: implicit steps of eight hours."""

import numpy as np
from fipy import CellVariable, DiffusionTerm, Grid2D, TransientTerm

mesh = Grid2D(nx=192, ny=192, Lx=4.0, Ly=4.0)
x, y = np.pi * mesh.cellCenters.value / 4
T = CellVariable(mesh=mesh, value=10 + 50 * np.cos(x) * np.cos(y), hasOld=True)
equation = TransientTerm() == DiffusionTerm(coeff=2.79 / (2630 * 775))
for _ in range(120):
    T.updateOld()
    equation.solve(var=T, dt=8 * 3600.0)
np.save("answer.npy", T.value.reshape(192, 192))
