"""laser.yaml with FiPy: the beam heats the uppermost cells, implicit steps of 0.5 ms."""

import numpy as np
from fipy import CellVariable, DiffusionTerm, Grid3D, LinearPCGSolver, TransientTerm

h, dt = 40e-6, 0.5e-3
mesh = Grid3D(nx=75, ny=25, nz=25, dx=h, dy=h, dz=h)
x, y, z = mesh.cellCenters.value
T = CellVariable(mesh=mesh, value=25.0, hasOld=True)
solver = LinearPCGSolver()
heat = CellVariable(mesh=mesh, value=0.0)
equation = TransientTerm(coeff=8000 * 650.0) == DiffusionTerm(coeff=24.0) + heat
for step in range(30):
    r_squared = (x - 0.5e-3 - 0.1 * (step + 0.5) * dt) ** 2 + y**2
    flux = 2 * 35 / (np.pi * 200e-6**2) * np.exp(-2 * r_squared / 200e-6**2)
    heat.setValue(np.where(z > 1e-3 - h, flux / h, 0.0))
    T.updateOld()
    equation.solve(var=T, dt=dt, solver=solver)
np.save("answer.npy", T.value.reshape(25, 25, 75))
