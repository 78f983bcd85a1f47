"""Named stencils, one module per domain; begin with `catalogue.py`, which looks them up by name.

Every module of a domain has `DOMAIN`, its name, and `entries()`, its stencils. Weights are computed
from formulas in exact fractions and carry a statement of their effect on polynomials (both in
`entry.py`), which the tests verify.
"""
