"""What all CPU methods share: threads, how a slab lies in memory, the stepper."""
