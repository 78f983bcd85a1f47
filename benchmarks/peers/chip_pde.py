"""The chip of chip.yaml with py-pde's time stepping, and finite volumes written by hand."""

import numba as nb
import numpy as np
from pde import CartesianGrid, PDEBase, ScalarField

h = 0.2e-3
grid = CartesianGrid([[0, 20e-3], [0, 10e-3]], [100, 50])
x, y = grid.cell_coords[..., 0], grid.cell_coords[..., 1]
die, lid = y < 2e-3, y > 3e-3
k = np.where(die, 148.0, np.where(lid, 401.0, 4.0))
rho_c = np.where(die, 2330 * 712.0, np.where(lid, 8933 * 385.0, 2500 * 900.0))
source = np.where((x > 5e-3) & (x < 10e-3) & (y < 1e-3), 2e8, 0.0)
nx, ny = k.shape
gx, gy = np.zeros((nx + 1, ny)), np.zeros((nx, ny + 1))
gx[1:-1] = 2 / (1 / k[1:] + 1 / k[:-1]) / h**2
gy[:, 1:-1] = 2 / (1 / k[:, 1:] + 1 / k[:, :-1]) / h**2
gy[:, -1] = 1 / (h / 2 / k[:, -1] + 1 / 8000) / h


class Chip(PDEBase):
    def evolution_rate(self, state, t=0):
        return ScalarField(grid, self._make_pde_rhs_numba(state)(state.data, t))

    def _make_pde_rhs_numba(self, state, **options):
        @nb.njit
        def rate(u, t):
            out = np.empty_like(u)
            for i in range(nx):
                for j in range(ny):
                    s = source[i, j]
                    if i > 0:
                        s += gx[i, j] * (u[i - 1, j] - u[i, j])
                    if i < nx - 1:
                        s += gx[i + 1, j] * (u[i + 1, j] - u[i, j])
                    if j > 0:
                        s += gy[i, j] * (u[i, j - 1] - u[i, j])
                    above = u[i, j + 1] if j < ny - 1 else 40.0
                    s += gy[i, j + 1] * (above - u[i, j])
                    out[i, j] = s / rho_c[i, j]
            return out

        return rate

    make_evolution_rate = _make_pde_rhs_numba


steps = int(np.ceil(0.2 / (0.9 * (rho_c / (gx[1:] + gx[:-1] + gy[:, 1:] + gy[:, :-1])).min())))
T = Chip().solve(ScalarField(grid, 40.0), t_range=0.2, dt=0.2 / steps, tracker=None)
np.save("answer.npy", T.data.T)
