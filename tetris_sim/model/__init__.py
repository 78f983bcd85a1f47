"""The mathematics of a simulation: grids, stencils, boundaries, bodies, equations, and the reference solver."""
