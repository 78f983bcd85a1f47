"""tensor.yaml with py-pde."""

import numpy as np
from pde import PDE, CartesianGrid, ScalarField

grid = CartesianGrid([[-0.08, 0.08]] * 2, 160)
c, s, along, across = np.cos(np.pi / 6), np.sin(np.pi / 6), 1e-5, 1e-6
consts = {
    "kxx": along * c**2 + across * s**2,
    "kyy": along * s**2 + across * c**2,
    "kxy": (along - across) * s * c,
}
rate = "kxx * d2_dx2(T) + 2 * kxy * d_dx(d_dy(T)) + kyy * d2_dy2(T)"
equation = PDE({"T": rate}, consts=consts, bc={"derivative": 0})
T = ScalarField.from_expression(grid, "100 * exp(-(x**2 + y**2) / (2 * 6e-3**2))")
T = equation.solve(T, t_range=10, dt=10 / 245, tracker=None)
np.save("answer.npy", T.data.T)
