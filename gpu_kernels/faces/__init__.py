"""Faces on a GPU: ghosts beyond them, and the frame along them."""
