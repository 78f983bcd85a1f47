"""gpu.plain: one sweep per launch, for every problem that fits into memory and that other methods
refuse.

Begin with `plain.cu`; `method.py` also has the substeps of adaptive time stepping.
"""
