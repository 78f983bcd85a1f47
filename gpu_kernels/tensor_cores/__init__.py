"""Stencils as matrix products on tensor cores: the methods of four papers, one module each.

- `trapezoid`: tensor trapezoid folding in FP64 (Tetris, section 3.2). Begin with `Folding`, the
  transformation in NumPy; the kernels are `trapezoid.cu` and `trapezoid_1d.cu`.
- `dual_tessellation`: two triangular weight matrices in FP64 (ConvStencil). Begin with the header
  of `stencil2row.cuh`; the module also has the paper's performance model.
- `tcstencil`: windows times banded matrices in FP16 (TCStencil, ICS 2022). `tcstencil_windows`
  makes the bands along x and packs matrices into the registers of the lanes; both bands of a star
  are in `tcstencil` itself (`tcstencil_star.cu`).
- `sparse`: a product with a matrix of which two of each four elements are zero (SparStencil,
  SC 2025). `sparse_plan` compresses a matrix (equation 2) and lays it out for `mma.sp`; `sparse`
  cuts a patch into units, finds the conflict graph of its columns (definitions 1 to 3) and permutes
  them (equation 5).

Parts of the papers that no run uses are in tests/papers.
"""
