"""Mathematics of a simulation: grids, stencils, boundaries, bodies, equations, the reference."""
