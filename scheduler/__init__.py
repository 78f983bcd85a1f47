"""Division of one grid between devices and ranks: the planner, the tuner, and the workers that
compute and exchange halos. Begin with `planner.py`, which makes a plan; `workers/` carries it out.
"""
