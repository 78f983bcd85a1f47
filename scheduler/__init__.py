"""Who computes what, and when they meet: machine, partition, plan, worker, exchange."""
