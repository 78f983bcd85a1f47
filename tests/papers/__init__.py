"""What the papers print and no run reaches: their algorithms in NumPy, their models, and kernels
that are rungs of their figures. Run by tests and benchmarks, named on docs/papers.md.
"""
