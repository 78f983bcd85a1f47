"""TCStencil step by step, in NumPy, to be read and tested apart, and the kernel that is made of it.

X. Liu et al., "Toward accelerated stencil computation by adapting tensor core unit on GPU", ICS
2022: a tile of 16 x 16 numbers times banded matrices of parameters.

    tiles     the authors' tiles: two products for stars, r + 1 for boxes that are mirrored, 2 r + 1
    for others windows   the same bands along x, so that the shifted sum is what a stream does
    anyway: what `tcstencil.cu` computes star      both bands of a star for one tile, as the authors
    have it: what `tcstencil_star.cu` computes matrices  weights as the matrices of a kernel, in the
    registers of the lanes model     arithmetic intensities and the roofline of the paper's appendix

`kernel` makes a GPU kernel of it (`tcstencil.cu`).
"""
