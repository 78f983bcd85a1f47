"""gpu.dual_tessellation: a stencil as products with two triangular weight matrices on FP64 tensor
cores (ConvStencil).

Begin with the header of `stencil2row.cuh`; `kernel.py` plans the kernels for one to three axes,
`convstencil_model.py` says how fast the paper's model thinks they can be.
"""
