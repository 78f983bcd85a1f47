"""Spectral: the state after any number of steps of the same discrete scheme at once.

Where every step is u' = A u + f with the same A and f, and A is made of operators along single
axes, the state after n steps follows from the eigenvectors of these. `operator.py` finds A and f in
a `Problem`, `body.py` in one with a body, or says why it cannot; `forms.py` is what they find.
`axis.py` has eigenvectors and transforms of an axis; `jump.py` advances a state of constant
coefficients, `layered.py` one of layers; `stepper.py` is the `Stepper` that the methods of CPU and
GPU share.
"""
