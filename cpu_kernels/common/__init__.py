"""What all CPU methods are made of: threads, vectors, layouts, the stepper."""
