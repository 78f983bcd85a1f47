"""Does the model fit the other sections of a configuration?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tetris_sim.conditions import ConstantInitial, NeumannFace
from tetris_sim.config.errors import Finding
from tetris_sim.config.words import keys_of, wanted
from tetris_sim.schema import GridSection, Request
from tetris_sim.time_section import TimeSection

_OF_EQUATIONS = ("euler", "rk2", "rk4", "leapfrog", "rkl2")


def check_cells(grid: GridSection, model: Any) -> Iterator[Finding]:
    """Cells that differ in width are for bodies."""
    if grid.graded and model.type != "heat":
        yield Finding(
            ("grid", "graded"),
            f"model.type: {model.type} makes the same step at every point, so its cells are alike; "
            "leave graded out",
            at_key=True,
        )


def check_scheme(time: TimeSection, model: Any) -> Iterator[Finding]:
    """Steps of equations are for equations. Whether those can be jumped over or solved for is known
    when they are made.
    """
    if time.scheme in _OF_EQUATIONS and model.type != "pde":
        yield Finding(
            ("time", "scheme"),
            f"{time.scheme} is for model.type: pde; leave it out with model.type: {model.type}",
        )


def check_initial(sections: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[Finding]:
    """A model whose fields have no initial states of their own needs one.

    Args:
        sections: those that are right by themselves, by key.
        values: what was written, for a model that is wrong.
    """
    model = values.get("model")
    kind = model.get("type") if isinstance(model, Mapping) else None
    if sections.get("initial", model) is None and kind != "pde":
        initial = keys_of(Request)["initial"]
        yield Finding(("initial",), f"missing; {wanted(initial)} is wanted")


def check_in_space(config: Request, model: Any) -> Iterator[Finding]:
    """What only files and a look at every point tell of a configuration that is right so far."""
    if hasattr(model, "problems_in_space"):
        for path, message in model.problems_in_space(config):
            yield Finding(tuple(path), message)


def check_model(sections: Mapping[str, Any]) -> Iterator[Finding]:
    """What the model says, with harmless sections in the place of wrong ones."""
    harmless = {
        "initial": ConstantInitial(type="constant", value=0.0),
        "boundaries": {"*": NeumannFace(type="neumann")},
        "time": TimeSection(steps=1),
    }

    names = [field.alias or name for name, field in Request.model_fields.items()]
    request = Request.model_validate(
        harmless | {name: sections[name] for name in names if name in sections}
    )

    if hasattr(sections["model"], "problems"):
        for path, message, *character in sections["model"].problems(request):
            if path[0] == "model" or path[0] in sections:
                yield Finding(tuple(path), message, character=next(iter(character), None))
