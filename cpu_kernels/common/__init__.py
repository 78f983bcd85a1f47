"""Shared parts of all CPU methods: the thread team, the memory layout of a slab, the stepper."""
