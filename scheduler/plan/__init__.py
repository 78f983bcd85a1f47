"""Plan: who computes what, how many steps go between two exchanges, and why."""
