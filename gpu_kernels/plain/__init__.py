"""gpu.plain: one sweep per launch. What fits into memory and is refused by all others is done here.

Begin with `plain.cu`; `method.py` has next to nothing to decide.
"""
