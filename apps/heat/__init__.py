"""Heat conduction: from materials, regions, sources and faces to a `Problem`.

Begin with `model.py`, the section of the configuration. `sections.py` holds its subsections,
`geometry.py` rasterizes regions, `survey.py` scans the grid, `rules.py` and `boundaries.py` derive
sources and ghosts, and `conduction.py` puts a heterogeneous body together.
"""
