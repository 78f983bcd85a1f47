"""Building blocks of compiled loops: machine operations, vectors, a barrier, and their code
generation.
"""
