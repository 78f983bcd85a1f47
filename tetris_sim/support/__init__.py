"""Files, caches, progress bars and phrases: helpers that know nothing of simulations."""
