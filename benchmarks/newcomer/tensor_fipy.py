"""tensor.yaml with FiPy: implicit steps of 0.2 s."""

import numpy as np
from fipy import CellVariable, DiffusionTerm, Grid2D, TransientTerm

n, h = 160, 1e-3
mesh = Grid2D(nx=n, ny=n, dx=h, dy=h)
x, y = mesh.cellCenters.value - 0.08
c, s = np.cos(np.pi / 6), np.sin(np.pi / 6)
turn = np.array([[c, -s], [s, c]])
k = turn @ np.diag([1e-5, 1e-6]) @ turn.T
T = CellVariable(mesh=mesh, value=100 * np.exp(-(x**2 + y**2) / (2 * 6e-3**2)), hasOld=True)
equation = TransientTerm() == DiffusionTerm(coeff=[k])
for _ in range(50):
    T.updateOld()
    equation.solve(var=T, dt=0.2)
np.save("answer.npy", T.value.reshape(n, n))
