"""gpu.steady, gpu.implicit: states that are solved for on a GPU.

Begin with `arithmetic.py`; `operator.cuh` says how a column of points is walked along.
"""
