"""Kernels that fuse several time steps per launch (temporal blocking), and methods made of them.

Begin with `kernel.py`: a `FusedKernel` says how a kernel is compiled and launched, and
`StreamedAxis` how blocks of threads share an axis. `method.py` makes a method of kernel families.
`formats.py` has the reduced-precision formats of tensor cores and weights rounded to them.
"""
