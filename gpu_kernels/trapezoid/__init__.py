"""gpu.trapezoid: tensor trapezoid folding on FP64 tensor cores."""
