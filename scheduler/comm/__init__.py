"""Comm: how ranks talk, and how all of them end alike."""
