"""What is a kernel that makes several steps at once, and a method that is made of such kernels?

Begin with `kernel.py`: a `FusedKernel` says how it is compiled and launched, and `Stream` how
blocks of threads share an axis. `method.py` makes a method of families of them. For kernels that
multiply shorter numbers than they are given, `formats.py` has the formats, `rounding.py` weights in
FP16 whose sum stays, and `half.py` what methods in FP16 refuse and what a multiprocessor holds.
"""
