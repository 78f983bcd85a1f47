"""gpu.tcstencil: fused steps as products of windows with banded matrices (TCStencil, ICS 2022).

- `windows`: the authors' bands along x, so that the shifted sum is what a stream does anyway
- `star`: both bands of a star for one tile, as the authors have it (`tcstencil_star.cu`)
- `matrices`: weights as the matrices of a kernel, in the registers of the lanes
- `kernel`: the GPU kernel of windows (`tcstencil.cu`)

The authors' tiles and the model of their appendix are in tests/papers/tcstencil.
"""
