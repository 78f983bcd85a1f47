"""Books and papers that several domains take formulas from."""

from __future__ import annotations

COLLATZ = "L. Collatz, The Numerical Treatment of Differential Equations (1960), appendix, table VI"
FORNBERG = "B. Fornberg, Math. Comp. 51 (1988) 699, table 1"
OREILLY_BECK = (
    "R. C. O'Reilly, J. M. Beck, A family of large-stencil discrete Laplacian approximations (2006)"
)
