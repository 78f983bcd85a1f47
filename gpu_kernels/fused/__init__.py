"""Kernels that fuse several time steps per launch (temporal blocking), and methods made of them.

Begin with `kernel.py`: a `FusedKernel` says how a kernel is compiled and launched, and
`StreamedAxis` how blocks of threads share an axis. `method.py` makes a method of kernel families.
Formats of reduced precision follow the kernels there.
"""
