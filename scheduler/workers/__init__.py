"""Workers and the halo exchange between them, load balancing and recovery during a run. Begin with
`worker.py`.
"""
