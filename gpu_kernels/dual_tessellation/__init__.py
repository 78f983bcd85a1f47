"""gpu.dual_tessellation: stencil2row and two weight matrices on FP64 tensor cores (ConvStencil)."""
