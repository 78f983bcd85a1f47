"""The chip of chip.yaml with FiPy: finite volumes, implicit steps of argv[1] seconds."""

import sys

import numpy as np
from fipy import (
    CellVariable,
    DiffusionTerm,
    FaceVariable,
    Grid2D,
    ImplicitSourceTerm,
    TransientTerm,
)

dt, t_end, h = float((sys.argv[1:] or ["2e-3"])[0]), 0.2, 0.2e-3
mesh = Grid2D(nx=100, ny=50, dx=h, dy=h)
x, y = mesh.cellCenters.value
die, lid = y < 2e-3, y > 3e-3
k = np.where(die, 148.0, np.where(lid, 401.0, 4.0))
rho_c = np.where(die, 2330 * 712.0, np.where(lid, 8933 * 385.0, 2500 * 900.0))
source = np.where((x > 5e-3) & (x < 10e-3) & (y < 1e-3), 2e8, 0.0)
# Half a cell and the film are in series; FiPy's own faces are insulated.
at_top = np.isclose(y, 10e-3 - h / 2)
film = CellVariable(mesh=mesh, value=np.where(at_top, 1 / (h / 2 / k + 1 / 8000) / h, 0.0))
face_k = CellVariable(mesh=mesh, value=k).harmonicFaceValue
flow = FaceVariable(mesh=mesh, value=face_k.value)
flow.setValue(0.0, where=mesh.exteriorFaces)
heat = CellVariable(mesh=mesh, value=source)
T = CellVariable(mesh=mesh, value=40.0, hasOld=True)
equation = TransientTerm(coeff=CellVariable(mesh=mesh, value=rho_c)) == (
    DiffusionTerm(coeff=flow) - ImplicitSourceTerm(coeff=film) + film * 40.0 + heat
)
for _ in range(round(t_end / dt)):
    T.updateOld()
    equation.solve(var=T, dt=dt)
np.save("answer.npy", T.value.reshape(50, 100))
