"""Systems of partial differential equations: from formulas to the stages of a time step."""
