"""wall.yaml with FiPy: implicit steps of a minute."""

import fipy as fp
import numpy as np

n, h = 156, 2.5e-3
mesh = fp.Grid1D(nx=n, dx=h)
(x,) = mesh.cellCenters.value
layer = np.searchsorted([0.015, 0.255, 0.375], x)
k = np.array([0.7, 0.72, 0.035, 0.9])[layer]
rho_c = np.array([1400 * 1000.0, 1920 * 835.0, 30 * 1450.0, 1800 * 1000.0])[layer]
# Half a cell and the film are in series; FiPy's own faces are insulated.
film, gain = np.zeros(n), np.zeros(n)
film[0], film[-1] = 1 / (h / 2 / k[0] + 1 / 7.7) / h, 1 / (h / 2 / k[-1] + 1 / 25) / h
gain[0], gain[-1] = film[0] * 20, film[-1] * -10
flow = fp.FaceVariable(mesh=mesh, value=fp.CellVariable(mesh=mesh, value=k).harmonicFaceValue.value)
flow.setValue(0.0, where=mesh.exteriorFaces)
T = fp.CellVariable(mesh=mesh, value=20.0, hasOld=True)
equation = fp.TransientTerm(coeff=fp.CellVariable(mesh=mesh, value=rho_c)) == (
    fp.DiffusionTerm(coeff=flow)
    - fp.ImplicitSourceTerm(coeff=fp.CellVariable(mesh=mesh, value=film))
    + fp.CellVariable(mesh=mesh, value=gain)
)
for _ in range(12 * 60):
    T.updateOld()
    equation.solve(var=T, dt=60.0)
np.save("answer.npy", T.value)
