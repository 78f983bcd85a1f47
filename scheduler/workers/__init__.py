"""Run: workers, and the halos that move between them."""
