"""weather.yaml with FiPy: implicit steps of ten minutes, as the table has them."""

import fipy as fp
import numpy as np

n, h = 156, 2.5e-3
hours, ambient = np.loadtxt("weather.csv", delimiter=",", skiprows=1).T
mesh = fp.Grid1D(nx=n, dx=h)
(x,) = mesh.cellCenters.value
layer = np.searchsorted([0.015, 0.255, 0.375], x)
k = np.array([0.7, 0.72, 0.035, 0.9])[layer]
rho_c = np.array([1400 * 1000.0, 1920 * 835.0, 30 * 1450.0, 1800 * 1000.0])[layer]
# Half a cell and the film are in series; FiPy's own faces are insulated.
film = np.zeros(n)
film[0], film[-1] = 1 / (h / 2 / k[0] + 1 / 7.7) / h, 1 / (h / 2 / k[-1] + 1 / 25) / h
flow = fp.FaceVariable(mesh=mesh, value=fp.CellVariable(mesh=mesh, value=k).harmonicFaceValue.value)
flow.setValue(0.0, where=mesh.exteriorFaces)
gain = fp.CellVariable(mesh=mesh, value=0.0)
T = fp.CellVariable(mesh=mesh, value=20.0, hasOld=True)
equation = fp.TransientTerm(coeff=fp.CellVariable(mesh=mesh, value=rho_c)) == (
    fp.DiffusionTerm(coeff=flow)
    - fp.ImplicitSourceTerm(coeff=fp.CellVariable(mesh=mesh, value=film))
    + gain
)
for step in range(1, 12 * 144 + 1):
    outside = np.interp(step / 6, hours, ambient)
    gain.setValue(film * np.where(x < 0.1, 20.0, outside))
    T.updateOld()
    equation.solve(var=T, dt=600.0)
np.save("answer.npy", T.value)
