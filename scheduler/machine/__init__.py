"""Hardware discovery: the cores, memory and GPUs of a computer, and which of them belong to which
rank and worker. Begin with `machine.py`.
"""
