"""Steppers: the state of a slab in GPU memory, or passing through it."""
