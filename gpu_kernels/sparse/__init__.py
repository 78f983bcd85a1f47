"""gpu.sparse: fused steps as a product with a matrix of which two of each four elements are zero
(SparStencil, SC 2025).

- `units`: a patch cut into rows that are multiplied when they arrive
- `conflicts`: columns that cannot share a pair as a graph, and what a valid matching is
  (definitions 1 to 3)
- `permutation`: columns of the one matrix and rows of the other in the order of the pairs
  (equation 5)
- `compression`: the two of four that are kept, and where they stood (equation 2)
- `fragments`: both in the registers of `mma.sp`, as the instruction wants them
- `plan`: what those make, as the kernel is handed it
- `kernel`: the GPU kernel of it (`sparse.cu`)

The rest of the paper is in tests/papers/sparstencil.
"""
