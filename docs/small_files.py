"""Files beside the benchmark pages, small enough to be kept: JSON in few lines and digits, SVG with
text as text and every style said once.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from tetris_sim.outputs.drawing import STYLE
from tetris_sim.support.files import atomic_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SVG = "http://www.w3.org/2000/svg"
_FAMILY = re.compile(r"'DejaVu Sans'(, [^;]*)?")
_FONT = "'DejaVu Sans', Verdana, sans-serif"  # the second is as wide as the first
_WIDTH = 160  # of a line of JSON
ET.register_namespace("", _SVG)
ET.register_namespace("xlink", "http://www.w3.org/1999/xlink")


def compact(value: Any, depth: int = 0) -> str:
    """JSON with eight digits of each number, and what fits into a line in one."""
    line = _in_a_line(value)
    if len(line) + depth > _WIDTH and isinstance(value, dict | list):
        indent = "\n" + " " * depth
        parts = _parts(value, lambda part: compact(part, depth + 1))
        line = line[0] + f"{indent} " + f",{indent} ".join(parts) + indent + line[-1]
    return line if depth else f"{line}\n"


def _in_a_line(value: Any) -> str:
    if isinstance(value, dict | list):
        first, last = "{}" if isinstance(value, dict) else "[]"
        return first + ", ".join(_parts(value, _in_a_line)) + last
    if isinstance(value, float):
        digits = re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.8g}")
        return digits if "e" in digits or "." in digits else f"{digits}.0"
    return json.dumps(value)


def _parts(value: dict[str, Any] | list[Any], write: Callable[[Any], str]) -> list[str]:
    if isinstance(value, dict):
        return [f"{json.dumps(key)}: {write(part)}" for key, part in value.items()]
    return [write(part) for part in value]


def save_picture(figure: Figure, path: Path) -> None:
    """Write an SVG file; equal figures give equal files."""
    from matplotlib import rc_context
    from matplotlib.ticker import ScalarFormatter

    # Labels of ticks are plain text where no power of ten stands beside the axis.
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(formatter := axis.get_major_formatter(), ScalarFormatter):
                formatter.set_useMathText(False)

    drawn = io.StringIO()
    with rc_context({**STYLE, "svg.hashsalt": "tetris_sim", "svg.fonttype": "none"}):
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    atomic_text(path, small(drawn.getvalue()))


def small(svg: str) -> str:
    """The same picture without what a browser does not need."""
    root = ET.fromstring(svg)  # what matplotlib has just written
    used = set(re.findall(r"#([\w.-]+)", svg))
    _flatten(root, used)
    _say_styles_once(root)

    text = ET.tostring(root, encoding="unicode")
    return text.replace("><g", ">\n<g").replace("><path", ">\n<path") + "\n"


def _flatten(parent: ET.Element, used: set[str]) -> None:
    """Leave out metadata, names that nothing refers to, groups that say nothing, and digits below
    a tenth of a point.
    """
    kept: list[ET.Element] = []
    for child in parent:
        if child.tag == f"{{{_SVG}}}metadata":
            continue

        if child.get("id") not in used:
            child.attrib.pop("id", None)
        for key in ("d", "x", "y", "transform"):
            if "scale" not in child.get(key, "scale"):
                child.set(key, _rounded(child.attrib[key]))
        if child.get("transform", "").startswith("rotate(0 "):
            del child.attrib["transform"]

        _flatten(child, used)
        kept += list(child) if child.tag == f"{{{_SVG}}}g" and not child.attrib else [child]
        if not (child.text or "").strip():
            child.text = None
        child.tail = None
    parent[:] = kept


def _rounded(numbers: str) -> str:
    """Numbers to a tenth of a point, and no blanks beside letters."""
    short = re.sub(r"-?\d+\.\d+", lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), numbers)
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", re.sub(r"-0\b(?!\.)", "0", short)).strip()


def _say_styles_once(root: ET.Element) -> None:
    """A class for each style."""
    elements = [element for element in root.iter() if "style" in element.attrib]
    styles = Counter(re.sub(_FAMILY, _FONT, element.attrib["style"]) for element in elements)
    names = {style: f"s{k}" for k, (style, _) in enumerate(styles.most_common())}
    for element in elements:
        element.set("class", names[re.sub(_FAMILY, _FONT, element.attrib.pop("style"))])

    sheet = next(root.iter(f"{{{_SVG}}}style"), None)
    if sheet is not None:
        rules = [f".{name}{{{style}}}" for style, name in names.items()]
        sheet.text = "\n".join([sheet.text or "", *rules])
