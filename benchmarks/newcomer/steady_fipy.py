"""steady.yaml with FiPy."""

import numpy as np
from fipy import CellVariable, DiffusionTerm, Grid2D, ImplicitSourceTerm

h, k = 10e-3, 52.0
mesh = Grid2D(nx=60, ny=100, dx=h, dy=h)
x, y = mesh.cellCenters.value
T = CellVariable(mesh=mesh, value=0.0)
T.constrain(100.0, mesh.facesBottom)
# Half a cell and the film are in series, in the cells at the right and at the top.
film = 1 / (h / 2 / k + 1 / 750) / h
films = CellVariable(mesh=mesh, value=film * (np.isclose(x, 0.595) * 1.0 + np.isclose(y, 0.995)))
(DiffusionTerm(coeff=k) - ImplicitSourceTerm(coeff=films)).solve(var=T)
np.save("answer.npy", T.value.reshape(100, 60))
