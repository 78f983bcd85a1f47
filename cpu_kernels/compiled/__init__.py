"""What compiled loops are made of: instructions, vectors, a barrier, the making of it."""
