"""One run: preparing it, the time loop, its workers, and what is written while it computes."""
