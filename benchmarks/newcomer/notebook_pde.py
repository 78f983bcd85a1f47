# %%
import numpy as np
from pde import CartesianGrid, DataTracker, DiffusionPDE, ScalarField

grid = CartesianGrid([[0, 1]], 100)
equation = DiffusionPDE(401 / (8933 * 385), bc={"value": 0})
middle = DataTracker(lambda u, t: {"t": t, "T": u.interpolate([0.5])}, interrupts=10)
T = ScalarField.from_expression(grid, "100*sin(pi*x)")
T = equation.solve(T, t_range=600, dt=600 / 1555, tracker=["progress", middle])
# %%
T.plot(action="none", filename="picture.png")
# %%
middle.data[-5:]
# %%
np.save("answer.npy", T.data)
