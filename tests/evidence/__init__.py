"""Results, plans, errors and names frozen as digests: they must not change when code is rearranged.

`cpu.json` (two cores of an AMD EPYC) and `gpu.json` (one H100) are what the code gave on 2026-11-26.
Plans, and results with sin, exp and such, belong to the machine: compare on one.
"""
