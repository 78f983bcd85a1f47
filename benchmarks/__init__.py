"""What the pages of docs/benchmarks are measured, drawn and predicted with: limits and peers of the
methods, ladders, sweeps, counters and scaling.

`cpu.py`, `gpu.py`, `case_study.py` and the scripts of SparStencil's figures measure;
docs/make_benchmark_pages.py makes the pages.
"""
