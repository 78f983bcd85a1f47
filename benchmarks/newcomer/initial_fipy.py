"""initial.yaml with FiPy: implicit steps of 2 ms."""

import numpy as np
from fipy import CellVariable, DiffusionTerm, Grid2D, TransientTerm

mesh = Grid2D(nx=128, ny=96, Lx=0.04, Ly=0.03)
x, y = np.pi * mesh.cellCenters.value / [[0.04], [0.03]]
start = 100 * np.sin(x) * np.sin(y) + 30 * np.sin(3 * x) * np.sin(2 * y)
T = CellVariable(mesh=mesh, value=start, hasOld=True)
T.constrain(0.0, mesh.exteriorFaces)
equation = TransientTerm() == DiffusionTerm(coeff=401 / (8933 * 385))
for _ in range(100):
    T.updateOld()
    equation.solve(var=T, dt=2e-3)
np.save("answer.npy", T.value.reshape(96, 128))
