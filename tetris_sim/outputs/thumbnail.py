"""A small picture of a state inside of an HTML page."""

from __future__ import annotations

import base64
import math

import numpy as np

from tetris_sim.model.method import Box
from tetris_sim.outputs.compositions import draw_state
from tetris_sim.outputs.drawing import Drawing
from tetris_sim.outputs.labels import Caption, moment
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.sampling import Values, default_cuts, sample

_DPI = 60


def small_picture(snapshot: Snapshot) -> str:
    """The first field of a state."""
    problem = snapshot.problem
    variable = problem.variables[0]

    def read(box: Box) -> Values:
        return np.asarray(snapshot.box(box)[0])

    planes = sample(read, problem.grid, default_cuts(problem.grid))
    when = moment(snapshot.step, snapshot.time, timeless=math.isinf(problem.dt_limit))
    caption = Caption(variable.long_name, variable.unit, variable.long_name)
    return as_image(draw_state(planes, caption, moment=when))


def as_image(drawing: Drawing) -> str:
    """A figure as an element of a page."""
    text = base64.b64encode(drawing.png(_DPI)).decode()
    return f'<img alt="the state" src="data:image/png;base64,{text}"/>'
