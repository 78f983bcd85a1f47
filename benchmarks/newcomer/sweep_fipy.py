"""sweep.yaml with FiPy: implicit steps of 2 s."""

import numpy as np
from fipy import CellVariable, DiffusionTerm, Grid1D, ImplicitSourceTerm, TransientTerm

n, h, k = 50, 1e-3, 60.5
mesh, last = Grid1D(nx=n, dx=h), np.arange(n) == n - 1
found = []
for film in np.linspace(50, 600, 12):
    sent = CellVariable(mesh=mesh, value=last / (h / 2 / k + 1 / film) / h)
    T = CellVariable(mesh=mesh, value=100.0, hasOld=True)
    equation = TransientTerm(coeff=7854 * 434.0) == (
        DiffusionTerm(coeff=k) - ImplicitSourceTerm(coeff=sent) + sent * 20.0
    )
    for _ in range(300):
        T.updateOld()
        equation.solve(var=T, dt=2.0)
    found.append(T.value.max())
np.save("answer.npy", found)
