"""Spectral propagation: the state after any number of steps of the same discrete scheme, at once.

Where every step is u' = A u + f with the same A and f, and A is made of operators along single
axes, the state after n steps follows from their eigenvectors (docs/decisions/0021). Begin with
`operator.py`, which extracts A and f from a `Problem`, or says why it cannot. `axis.py` has the
eigenvectors and transforms of an axis, and the data types of operators; `propagation.py` advances
states of constant coefficients and of layers; `stepper.py` is the `Stepper` that the methods of CPU
and GPU share.
"""
