"""Analytic cases that show whether this machine computes the right answer: the verb `verify`."""
