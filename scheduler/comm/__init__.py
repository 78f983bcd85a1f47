"""Communication between ranks: one interface for MPI and for a single process, and error handling
that ends all ranks consistently. Begin with `communicator.py`.
"""
