"""radiation.yaml with FiPy: the flux of the face is an explicit source, iterated."""

import numpy as np
from fipy import CellVariable, DiffusionTerm, Grid1D, LinearLUSolver

n, h, k = 100, 1e-3, 55.563
mesh = Grid1D(nx=n, dx=h)
T = CellVariable(mesh=mesh, value=1000.0)
T.constrain(1000.0, mesh.facesLeft)
source = CellVariable(mesh=mesh, value=0.0)
equation = DiffusionTerm(coeff=k) + source
flux = 0.0
for _ in range(40):
    face = T.value[-1] - flux * h / 2 / k
    flux = 0.98 * 5.670374419e-8 * (face**4 - 300.0**4)
    source.setValue(np.where(np.arange(n) == n - 1, -flux / h, 0.0))
    equation.solve(var=T, solver=LinearLUSolver(tolerance=1e-12))
np.save("answer.npy", T.value - 273.15)
