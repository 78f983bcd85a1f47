# %%
import matplotlib.pyplot as plt
import numpy as np
from fipy import CellVariable, DiffusionTerm, Grid1D, TransientTerm

mesh = Grid1D(nx=100, dx=0.01)
(x,) = mesh.cellCenters.value
T = CellVariable(mesh=mesh, value=100 * np.sin(np.pi * x), hasOld=True)
T.constrain(0.0, mesh.exteriorFaces)
equation = TransientTerm() == DiffusionTerm(coeff=401 / (8933 * 385))
middle = []
for step in range(300):
    T.updateOld()
    equation.solve(var=T, dt=2.0)
    if step % 5 == 4:
        middle.append((2.0 * (step + 1), T.value[49:51].mean()))
# %%
plt.plot(x, T.value)
plt.savefig("picture.png")
# %%
np.array(middle[-5:])
# %%
np.save("answer.npy", T.value)
