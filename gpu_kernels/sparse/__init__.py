"""SparStencil's pipeline: a stencil becomes a product with a matrix of which two of each four
elements are zero.

Q. Li et al., "SparStencil: Retargeting Sparse Tensor Cores to Scientific Stencil Computations via
Structured Sparsity Transformation", SC 2025. Each module is one step of it, in NumPy, to be read
and tested apart:

    flattening      weights as one row, the points under them as columns: a vector times a matrix
    (figure 2) crush           r1 x r2 results share a column: a matrix of stairs times a matrix
    without copies (figures 3 and 4) staircase       what those stairs are, and which columns they
    keep apart (definition 4, theorem 1) conflicts       columns that cannot share a pair as a
    graph, and what a valid matching is (definitions 1 to 3) matching        pairs of columns:
    algorithm 1, and the largest matching there is (problem 1) permutation     columns of the one
    matrix and rows of the other in the order of the pairs (equation 5) compression     the two of
    four that are kept, and where they stood (equation 2) fragments       both in the registers of
    `mma.sp`, as the instruction wants them patches       all points of a patch as the products of
    the kernel units         patches cut into pieces that are multiplied as they arrive dense_plans
    both in FP64, without sparsity plan          what those three make, as the kernel is handed it
    exploration     how long a layout takes, by the paper's model (equations 6 to 11) pipeline
    all of these together

`kernel` makes a GPU kernel of it (`sparse.cu`).
"""
