"""Make `guide/messages.md`: mistakes in configurations that people make, and the message for each.

python docs/make_messages_page.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tetris_sim import load_config
from tetris_sim.errors import TetrisError

PAGE = Path(__file__).with_name("guide") / "messages.md"

# One body for all mistakes, so that lines and columns can be counted here.
FACES = """\
  y+: {type: convection, h: 50 W/m2K, ambient: {file: air.csv, column: air}}
  "*": {type: insulated}
"""
BODY = f"""\
title: sink
grid: {{shape: [40, 20], size: [40 mm, 20 mm]}}
model:
  type: heat
  materials: {{sink: aluminium, die: silicon}}
  regions:
    - {{material: sink}}
    - {{material: die, name: die, box: {{x: [10 mm, 20 mm], y: [0 mm, 2 mm]}}}}
  contacts:
    - {{between: [sink, die], resistance: 1e-5 m2K/W}}
  sources:
    - {{region: die, power: 400 W/m}}
initial: {{type: constant, value: 25 degC}}
boundaries:
{FACES}time: {{t_end: 60 s}}
output:
  probes: [{{name: top, at: [20 mm, 20 mm], every: 1 s}}]
"""
AIR = "time [h],air [degC],sun [W/m2]\n0,20,0\n24,25,400\n"

# (the mistake in words, what stands in BODY, what is written instead)
MISTAKES = [
    ("a key misspelt", "t_end", "tend"),
    ("a section misspelt", "boundaries:", "boundary:"),
    ("a key in the wrong section", "time: {t_end: 60 s}", "time: {t_end: 60 s, shape: [3]}"),
    ("a unit misspelt", "50 W/m2K", "50 W/m2C"),
    ("a unit of something else", "50 W/m2K", "50 W/mK"),
    ("a unit with capitals", "[40 mm, 20 mm]", "[40 MM, 20 mm]"),
    ("a unit with a factor too many", "50 W/m2K", "25W/(m^2*K*s)"),
    ("a decimal comma", "60 s", "0,5 s"),
    ("a star without quotes", '"*":', "*:"),
    ("a tab", "  type: heat", "\ttype: heat"),
    ("a bracket left open", "[20 mm, 20 mm]", "[20 mm, 20 mm"),
    ("a colon without a space", "type: heat", "type:heat"),
    ("a key twice", "time: {t_end: 60 s}", "time: {t_end: 60 s}\ntime: {t_end: 90 s}"),
    ("a shape with one number too few", "shape: [40, 20]", "shape: [40]"),
    ("a shape that is no list", "shape: [40, 20]", "shape: 40"),
    ("no points along an axis", "shape: [40, 20]", "shape: [40, 0]"),
    ("a material nearly known", "aluminium", "aluminum"),
    ("a material of nowhere", "{material: sink}", "{material: snk}"),
    ("a conductivity below 0", "silicon}", "{conductivity: -3, density: 1, specific_heat: 1}}"),
    ("a material without its density", "silicon}", "{conductivity: 3}}"),
    ("a melting point", "silicon}", "{material: silicon, melting_point: 1414 degC}}"),
    ("a region outside of the grid", "y: [0 mm, 2 mm]", "y: [30 mm, 32 mm]"),
    ("a box from right to left", "x: [10 mm, 20 mm]", "x: [20 mm, 10 mm]"),
    ("cells that are in no region", "{material: sink}", "{material: sink, box: {x: [0, 5 mm]}}"),
    ("a source in no cell", "{region: die,", "{region: die, box: {x: [30 mm, 35 mm]},"),
    ("a source in a region of no name", "{region: die,", "{region: dye,"),
    ("a source in the wrong unit", "400 W/m}", "400 W/m2}"),
    ("a contact between a material and nothing", "[sink, die]", "[sink, air]"),
    ("a face of an axis that is not there", '"*":', 'z+: {type: insulated}\n  "*":'),
    ("a face that is left out", '  "*": {type: insulated}\n', ""),
    ("a type of face misspelt", "insulated", "isolated"),
    ("one word for all faces", f"boundaries:\n{FACES}", "boundaries: insulated\n"),
    ("convection without its surroundings", ", ambient: {file: air.csv, column: air}", ""),
    ("a file that is not there", "air.csv", "wether.csv"),
    ("a column that is not in the file", "column: air", "column: wind"),
    ("a column of another quantity", "column: air", "column: sun"),
    ("a formula with an unknown name", "h: 50 W/m2K", 'h: "10 + 2*Temp"'),
    ("a formula that is cut off", "h: 50 W/m2K", 'h: "10 + 2*(T - 20"'),
    ("a step that is too long", "{t_end: 60 s}", "{t_end: 60 s, dt: 1 s}"),
    ("no time", "time: {t_end: 60 s}\n", ""),
    ("no end", "{t_end: 60 s}", "{scheme: implicit}"),
    ("an end in a steady state", "{t_end: 60 s}", "{t_end: 60 s, scheme: steady}"),
    ("a probe outside of the grid", "at: [20 mm, 20 mm]", "at: [20 mm, 25 mm]"),
    ("a probe with three places in a plane", "at: [20 mm, 20 mm]", "at: [20 mm, 20 mm, 1 mm]"),
    ("a film among the outputs", "output:", "output:\n  film: {every: 1 s}"),
    (
        "a thermostat without a sensor",
        "time:",
        "control: {t: {band: [20 degC, 30 degC], switches: die}}\ntime:",
    ),
]


INTRODUCTION = f"""# Mistakes and their messages

<!-- written by docs/make_messages_page.py; do not edit -->

Here are {len(MISTAKES)} mistakes that people make in configurations, with the messages of
`tetris-sim validate`, `plan` and `run`. A message names the file, line, column and key, what was
found, what is wanted, and often what to write instead. All mistakes of a file are listed at
once; the [exit code](running.md#exit-codes) is 2, or 4 for a time step that is too long. Each
mistake is made in this file, which is right without it and has a table `air.csv` beside it:

<!-- not run: air.csv is not here; the script that writes this page builds it with one -->
```yaml
{BODY.rstrip()}
```

"""


def wrong(old: str, new: str) -> str:
    """The body with a mistake in it."""
    assert BODY.count(old) == 1, old
    return BODY.replace(old, new)


def message(body: str) -> str:
    """What is said of a body; nothing if it is right."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "sink.yaml")
        file.write_text(body)
        file.with_name("air.csv").write_text(AIR)
        try:
            load_config(file).build()
        except TetrisError as error:
            return str(error).replace(f"{folder}/", "")
    return ""


def page() -> str:
    """The whole page."""
    rows = [INTRODUCTION, "| Mistake | Written | Message |\n|---|---|---|\n"]
    for what, old, new in MISTAKES:
        written, said = (
            f"`{' '.join(text.split())}`" if text else "nothing"
            for text in (new.strip(), message(wrong(old, new)))
        )
        rows.append(f"| {what} | {written} | {said} |\n")
    return "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page())
