"""Tuning: which method with which parameters is the fastest, measured and checked."""
