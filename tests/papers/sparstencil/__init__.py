"""SparStencil as it is published: a stencil becomes a product with a matrix of which two of each
four elements are zero.

Q. Li et al., "SparStencil: Retargeting Sparse Tensor Cores to Scientific Stencil Computations via
Structured Sparsity Transformation", SC 2025. Each module is a step of it:

- `flattening`: weights as one row, the points under them as columns (figure 2)
- `crush`: r1 x r2 results share a column: stairs times a matrix without copies (figures 3 and 4)
- `staircase`: what those stairs are, and which columns they keep apart (definition 4, theorem 1)
- `conflicts`: columns that cannot share a pair as a graph (definition 1)
- `matching`: pairs of columns: algorithm 1, and the largest matching there is (problem 1)
- `pipeline`: all of these together, and the product
- `exploration`: how long a layout takes, by the paper's model (equations 6 to 11)
- `patches`, `dense_plans`, `variants`: kernels of these and of other formats, for benchmarks
- `reading`: what registers and metadata hold, read back

What `gpu.sparse` takes of it is in gpu_kernels/sparse.
"""
