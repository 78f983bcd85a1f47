"""Helpers that know nothing of simulations: files, HDF5, the cache folder, signals, the progress
clock and phrases for messages.
"""
