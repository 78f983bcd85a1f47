"""Make the pictures of README and the gallery from the files that they link to.

    python docs/make_gallery.py [--results DIRECTORY] [NAME ...]

Every picture is the last record of a run of a template of `tetris-sim init` or of a file in
examples/, drawn as `tetris-sim plot` draws it and reduced to few colours, so that it stays below
60 KB. Runs that have ended in the results directory are not made again. Without names all pictures
are made. The words of the page are the comments at the head of each file, so they are said once.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from tetris_sim.commands.export import draw_record
from tetris_sim.commands.init import TEMPLATES
from tetris_sim.commands.sources import choose_variable, open_series
from tetris_sim.support.files import atomic_file, atomic_text

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "images" / "gallery"
PAGE = ROOT / "docs" / "gallery.md"
WIDTH = 720  # pixels, two beside each other on a wide screen
MOST_BYTES = 60_000
TEMPLATE_FOLDER = ROOT / "tetris_sim" / "commands" / "templates"


@dataclass(frozen=True)
class Shown:
    """A file of the gallery and how its last record is drawn.

    Attributes:
        name: of a template, else of a file in examples/.
        variable: the field to draw; the first one if None.
        cut: of a body in 3D, as `--slice` of `plot` takes it.
    """

    name: str
    variable: str | None = None
    cut: str | None = None

    @property
    def path(self) -> Path:
        """The configuration."""
        folder = TEMPLATE_FOLDER if self.name in TEMPLATES else ROOT / "examples"
        return folder / f"{self.name}.yaml"

    @property
    def picture(self) -> Path:
        """Where its picture is."""
        return PICTURES / f"{self.name}.png"


GALLERY = (
    Shown("finned_heat_sink", cut="x=30 mm"),
    Shown("chip_package", cut="z=0.05 mm"),
    Shown("heat_sink"),
    Shown("battery_cell", cut="y=14 mm"),
    Shown("pcb_vias", cut="z=1.58 mm"),
    Shown("pin_fin"),
    Shown("wall_u_value"),
    Shown("wall_weather"),
    Shown("window_frame"),
    Shown("borehole"),
    Shown("ice_store"),
    Shown("fire_column"),
    Shown("weld_seam", cut="z=3.75 mm"),
    Shown("laser_track", cut="y=0.005 mm"),
    Shown("solder_joint"),
    Shown("gray_scott", variable="v"),
    Shown("schnakenberg"),
    Shown("wave"),
    Shown("korteweg_de_vries"),
)


def run(shown: Shown, results: Path) -> Path:
    """Return the directory with the results of a file; run it if they are not there."""
    directory = results / shown.name
    if not (directory / "fields.h5").exists():
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        options = ["--set", f"output.directory={directory}", "--set", "output.pictures=false"]
        command = [sys.executable, "-m", "tetris_sim", "--no-progress", "run", str(shown.path)]
        subprocess.run([*command, *options], cwd=shown.path.parent, env=environ, check=True)
    return directory


def draw(shown: Shown, directory: Path) -> int:
    """Write the picture of the last record; return its bytes."""
    with open_series(directory) as series, tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.png"
        variable = choose_variable(series, shown.variable)
        cuts = [shown.cut] if shown.cut else []
        draw_record(series, len(series.steps) - 1, variable, slices=cuts, output=large)
        image = Image.open(large).convert("RGB")

    # Letters need the size more than a colour map needs its 256 colours.
    small = image.resize(
        (WIDTH, round(image.height * WIDTH / image.width)), Image.Resampling.LANCZOS
    )
    for colours in (256, 128, 64, 32):
        file = io.BytesIO()
        reduced = small.quantize(colours, dither=Image.Dither.NONE)
        reduced.save(file, format="PNG", optimize=True)
        if file.tell() <= MOST_BYTES:
            break
    else:
        msg = f"{shown.name}: {file.tell()} bytes with 32 colours; at most {MOST_BYTES} are wanted"
        raise ValueError(msg)
    with atomic_file(shown.picture) as part:
        part.write_bytes(file.getvalue())
    return file.tell()


HEAD = """# Gallery

Each picture is the last record of a run of the file that it links to. Of a template
`tetris-sim init NAME -o FILE` writes a copy for you to change; examples are in `examples/`. Page
and pictures are made by `docs/make_gallery.py`.
"""


def page() -> str:
    """Return the text of the page: a table of pictures, then what each file says of itself."""
    cells = [
        f"[![{title(it)}](images/gallery/{it.name}.png)](#{anchor(title(it))})" for it in GALLERY
    ]
    rows = [cells[k : k + 3] for k in range(0, len(cells), 3)]
    rows[-1] += [""] * (3 - len(rows[-1]))
    table = ["| | | |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join([HEAD, *table, "", *(section(it) for it in GALLERY)])


def section(shown: Shown) -> str:
    """Return what the page says of a file: the comment at its head, and how to get it."""
    path = shown.path.relative_to(ROOT).as_posix()
    what, *rest = comment(shown)
    picture = f"[![{title(shown)}](images/gallery/{shown.name}.png)](../{path})"
    if shown.name in TEMPLATES:
        source = f"Template `{shown.name}`, [{shown.name}.yaml](../{path})."
    else:
        source = f"Example [{shown.name}.yaml](../{path})."
    about = what if what.endswith(("?", ".")) else f"{what}."
    return "\n".join([f"## {title(shown)}", "", picture, "", about, source, *rest, ""])


def comment(shown: Shown) -> list[str]:
    """Return the lines of the comment at the head of a file."""
    lines = shown.path.read_text(encoding="utf-8").splitlines()
    head = itertools.takewhile(lambda line: line.startswith("#"), lines)
    return [line[1:].removeprefix(" ") for line in head]


def title(shown: Shown) -> str:
    """Return the title that the file gives to its pictures."""
    lines = shown.path.read_text(encoding="utf-8").splitlines()
    found = next(line for line in lines if line.startswith("title: "))
    text = found.removeprefix("title: ")
    return text[:1].upper() + text[1:]


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as the site and GitHub make it.

    >>> anchor("Chip package, load of two cores")
    'chip-package-load-of-two-cores'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def main() -> None:
    """Make the pictures that are asked for, and the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all if none is given")
    parser.add_argument("--results", type=Path, metavar="DIRECTORY", help="where runs are kept")
    args = parser.parse_args()

    atomic_text(PAGE, page())
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        results = args.results or Path(folder)
        for shown in GALLERY:
            if not args.names or shown.name in args.names:
                size = draw(shown, run(shown, results.absolute()))
                sys.stdout.write(f"{shown.name}: {size} bytes\n")


if __name__ == "__main__":
    main()
