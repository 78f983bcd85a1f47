"""ConvStencil as it is published: stencil2row and dual tessellation in NumPy, the sizes and times
of its equations, and the rung of its Figure 6 that writes both matrices to memory.

Y. Chen et al., "ConvStencil: Transform Stencil Computation to Matrix Multiplication on Tensor
Cores", PPoPP 2024. What `gpu.dual_tessellation` takes of it is in gpu_kernels/dual_tessellation.
"""
