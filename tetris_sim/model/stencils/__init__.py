"""Stencils with names, one module per domain; `catalogue` is the door to them.

Every module of a domain has `DOMAIN`, its name, and `entries()`, its stencils. Weights are computed
from formulas in exact fractions (`exact.py`) and carry a statement of what they do to polynomials
(`entry.py`), which the tests verify.
"""
