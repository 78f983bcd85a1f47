"""restart.yaml with py-pde; run twice, the second goes on."""

from pathlib import Path

import numpy as np
from pde import CartesianGrid, DiffusionPDE, FileStorage, ScalarField

grid = CartesianGrid([[0, 0.2], [0, 0.15]], [200, 150])
if Path("state.hdf5").exists():
    with FileStorage("state.hdf5", write_mode="readonly") as kept:
        T, first = kept[-1], kept.times[-1]
else:
    T = ScalarField.from_expression(grid, "20 + 80*cos(pi*x/0.2)*cos(2*pi*y/0.15)")
    first = 0.0
equation = DiffusionPDE(401 / (8933 * 385), bc={"derivative": 0})
with FileStorage("state.hdf5", write_mode="truncate") as storage:
    T = equation.solve(T, (first, first + 2.5), dt=5 / 2592, tracker=[storage.tracker(2.5)])
np.save("answer.npy", T.data.T)
