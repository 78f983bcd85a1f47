"""TCStencil as it is published: the authors' tiles in NumPy, and the model of the appendix.

X. Liu et al., "Toward accelerated stencil computation by adapting tensor core unit on GPU", ICS
2022. What `gpu.tcstencil` takes of it is in gpu_kernels/tcstencil.
"""
