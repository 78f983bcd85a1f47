"""own.yaml with FiPy: steps of 0.05."""

import numpy as np
from fipy import CellVariable, DiffusionTerm, Grid1D, ImplicitSourceTerm, TransientTerm

mesh = Grid1D(nx=1000, dx=0.1)
(x,) = mesh.cellCenters.value
u = CellVariable(mesh=mesh, value=(1 + np.exp((x - 20) / np.sqrt(6))) ** -2, hasOld=True)
equation = TransientTerm() == DiffusionTerm(coeff=1.0) + ImplicitSourceTerm(coeff=1 - u)
for _ in range(400):
    u.updateOld()
    equation.solve(var=u, dt=0.05)
np.save("answer.npy", u.value)
