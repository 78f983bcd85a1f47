"""fin.yaml with FiPy."""

import numpy as np
from fipy import CellVariable, DiffusionTerm, Grid2D, ImplicitSourceTerm

k, dy = 237.0, 1e-3 / 8
mesh = Grid2D(nx=200, ny=8, dx=0.05 / 200, dy=dy)
x, y = mesh.cellCenters.value
T = CellVariable(mesh=mesh, value=100.0)
T.constrain(100.0, mesh.facesLeft)
# Half a cell and the film are in series, in the cells at the top.
film = np.where(np.isclose(y, 1e-3 - dy / 2), 1 / (dy / 2 / k + 1 / 50) / dy, 0.0)
films = CellVariable(mesh=mesh, value=film)
(DiffusionTerm(coeff=k) - ImplicitSourceTerm(coeff=films) + films * 20.0).solve(var=T)
np.save("answer.npy", T.value.reshape(8, 200))
