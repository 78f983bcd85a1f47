"""Planning: candidates for the workers, the cost model, and the search for the fastest domain
decomposition and temporal blocking. Begin with `plan.py` (one process) or `ranks.py` (many).
"""
