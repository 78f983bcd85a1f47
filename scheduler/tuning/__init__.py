"""Autotuning: the fastest method and its parameters, timed and compared with the reference. Begin
with `tune.py`.
"""
