"""Where something is, and what heats it: boxes, conditions, floorplans of chips; sources and beams.

A floorplan names rectangles of a plane, and a power trace says what each of them gives off over
time, in the text files of architecture-level simulators such as HotSpot. Where a section names one,
it stands for as many sections as there are blocks, each an ordinary one with the name of its block.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tetris_sim.config.sections.conditions import FaceName
from tetris_sim.config.sections.quantities import (
    POWER,
    Length,
    Position,
    PositiveLength,
    Section,
)
from tetris_sim.config.sections.schema import ProbeName
from tetris_sim.config.sections.varying import (
    PathSection,
    TimeTable,
    Varying,
    VaryingDensity,
    VaryingFactor,
    VaryingPower,
    read_trace,
)
from tetris_sim.model.grid import PLACES
from tetris_sim.support.files import read_given
from tetris_sim.support.wording import describe, listed, suggestion

_MOST_BYTES = 1 << 24  # of a floorplan: a hundred thousand blocks
_SAME_PLACE = 1e-3  # of the smaller edge: what overlaps less are rounded digits of neighbours
_NAMED = 6  # blocks that a message lists


@dataclass(frozen=True)
class Block:
    """A rectangle of a floorplan.

    Attributes:
        name: in the file.
        x, y: from, to [m].
        capacity: heat per volume [J/(m^3 K)], if the file says it.
        resistivity: 1 over the conductivity [m K/W], if the file says it.
    """

    name: str
    x: tuple[float, float]
    y: tuple[float, float]
    capacity: float | None = None
    resistivity: float | None = None


def read_floorplan(path: Path) -> tuple[Block, ...]:
    """The blocks of a floorplan: lines of name, width, height, left x and lower y [m], and maybe
    heat capacity per volume and resistivity.

    Raises:
        ValueError: the file cannot be read, a line is none, or blocks overlap.
    """
    try:
        seen = path.stat()
        return _kept_blocks(path, (seen.st_ino, seen.st_size, seen.st_mtime_ns))
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read ({error}); a floorplan (.flp) is wanted"
        raise ValueError(msg) from error


@functools.lru_cache(maxsize=8)
def _kept_blocks(path: Path, stamp: object) -> tuple[Block, ...]:
    blocks = dict[str, Block]()
    for number, line in enumerate(read_given(path, _MOST_BYTES).decode().splitlines(), 1):
        words = line.partition("#")[0].split()
        # Three words say how strongly two blocks are wired, which matters to floorplanners only.
        if len(words) in (0, 3):
            continue
        try:
            block = _read_block(words)
            if block.name in blocks:
                msg = f"{block.name} is there twice"
                raise ValueError(msg)
        except ValueError as error:
            msg = f"{path}, line {number}: {error}"
            raise ValueError(msg) from None
        blocks[block.name] = block

    if not blocks:
        msg = f"{path} holds no block; lines of name, width, height, left x, lower y are wanted"
        raise ValueError(msg)
    _refuse_overlaps(path, [*blocks.values()])
    return tuple(blocks.values())


def _read_block(words: list[str]) -> Block:
    wanted = "name, width, height, left x, lower y [m], and maybe heat capacity and resistivity"
    if len(words) not in (5, 7):
        msg = f"{len(words)} words were found; {wanted} are wanted"
        raise ValueError(msg)

    # Words that are numbers may still be none of a rectangle.
    try:
        width, height, left, low, *rest = map(float, words[1:])
    except ValueError:
        msg = f"{describe(' '.join(words[1:]))} was found; {wanted} are wanted"
        raise ValueError(msg) from None
    if not (all(map(math.isfinite, (left, low, *rest))) and min(width, height, *rest, 1.0) > 0):
        msg = f"{words[0]} is {width:g} m x {height:g} m; positive, finite numbers are wanted"
        raise ValueError(msg)
    capacity, resistivity = rest or (None, None)
    return Block(words[0], (left, left + width), (low, low + height), capacity, resistivity)


def _refuse_overlaps(path: Path, blocks: list[Block]) -> None:
    """Raise `ValueError` for two blocks that lie over each other by more than rounded digits."""
    # Sorted by where they begin along x, a block meets only those that begin before it ends.
    ordered = sorted(blocks, key=lambda it: it.x)
    for number, a in enumerate(ordered):
        for b in ordered[number + 1 :]:
            if b.x[0] >= a.x[1]:
                break
            common = [min(p[1], q[1]) - max(p[0], q[0]) for p, q in ((a.x, b.x), (a.y, b.y))]
            edge = min(p[1] - p[0] for p in (a.x, a.y, b.x, b.y))
            if min(common) > _SAME_PLACE * edge:
                told = f"{common[0] * 1e3:.4g} mm x {common[1] * 1e3:.4g} mm"
                msg = f"{path}: {a.name} and {b.name} overlap by {told}; a place is in one block"
                raise ValueError(msg)


class BoxSection(Section):
    """A box: it contains the cells whose centres lie in it, and extends over any axis not given."""

    x: tuple[Position, Position] | None = None
    """From, to [m]."""
    y: tuple[Position, Position] | None = None
    z: tuple[Position, Position] | None = None
    r: tuple[Position, Position] | None = None
    theta: tuple[Position, Position] | None = None
    """From, to [rad], or with a unit."""

    @field_validator(*PLACES, mode="after")
    @classmethod
    def _ascends(
        cls, span: tuple[float, float] | None, info: ValidationInfo
    ) -> tuple[float, float] | None:
        if span is not None and not span[0] < span[1]:
            unit = "rad" if info.field_name == "theta" else "m"
            low, high = (f"{it:g} {unit}" for it in span)
            msg = f"a box from {low} to {high} holds nothing; give [from, to]"
            raise ValueError(msg)
        return span


class Location(Section):
    """A part of the body: points that meet every condition given, or the whole body if none is."""

    box: BoxSection | None = None
    where: str | None = None
    """A condition in x, y, z [m], for example `hypot(x - 5e-3, y - 5e-3) < 1e-3`."""
    floorplan: str | None = None
    """A file (.flp) of blocks in x and y, each of which becomes a part of its name; `box` then
    says where they lie along z.
    """
    at: tuple[Length, Length] | None = None
    """Of a floorplan: where its origin lies, x and y [m]; at 0, 0 if not given."""

    # Where floorplans were: the number of the section that it was written in, and its block.
    _written: tuple[int, str] | None = PrivateAttr(default=None)

    @field_validator("floorplan", mode="after")
    @classmethod
    def _is_floorplan(cls, file: str | None) -> str | None:
        if file is not None:
            read_floorplan(Path(file))
        return file

    @model_validator(mode="after")
    def _plan_and_box(self) -> Self:
        if self.floorplan is None and self.at is not None:
            msg = "at says where a floorplan lies, and there is none; give box for a part"
            raise ValueError(msg)
        if self.floorplan is not None and self.box is not None and (self.box.x or self.box.y):
            msg = "the floorplan says x and y of its blocks; box.z says where they lie along z"
            raise ValueError(msg)
        return self

    def blocks(self) -> Iterator[tuple[Block, BoxSection, str]]:
        """Yield the blocks of the floorplan, where each of them is, and its name among all: that of
        the section, if it has one, stands before it.
        """
        assert self.floorplan is not None
        # Names of sections keep the blocks of two layers with one plan apart.
        name, (right, up) = getattr(self, "name", None), self.at or (0.0, 0.0)
        for block in read_floorplan(Path(self.floorplan)):
            (left, end), (low, high) = block.x, block.y
            spans = {"x": (left + right, end + right), "y": (low + up, high + up)}
            box = (self.box or BoxSection()).model_copy(update=spans)
            yield block, box, f"{name}_{block.name}" if name else block.name


def _as_table(value: object) -> object:
    return {"table": value} if isinstance(value, str | list | tuple) else value


class VolumeSource(Location):
    """Heat in a part of the body: a total power, spread evenly, or a power per volume."""

    type: Literal["volume"] = "volume"
    name: ProbeName | None = None
    """By which `control` switches it, and of a floorplan the beginning of the names of blocks."""
    material: str | None = None
    """Where this material is."""
    region: str | None = None
    """Where the region of this name is seen."""
    power: VaryingPower | None = None
    """[W], per metre of depth in 2D, per square metre of cross-section in 1D. Of a floorplan, a
    power trace: `{file: gcc.ptrace, interval: 3.33 us}`, a file whose first line names the blocks,
    with a row of powers for each interval; without `interval` the means of all rows.
    """
    density: VaryingDensity | None = None
    """[W/m^3]; a formula may use the temperature T there [degC], as what reacts or leaks does."""
    over_time: Annotated[VaryingFactor, BeforeValidator(_as_table)] = 1.0
    """A table, a CSV file or a list of [time, factor], by which the heat is multiplied."""

    nearest: bool = False
    """Whether a box between the centres of cells, which else holds no cell, heats the cells that
    its middle lies in; blocks of floorplans do. It lies within the grid.
    """

    _per: str = PrivateAttr(default="")  # what the power was given per: "", "m" or "m^2"

    @model_validator(mode="wrap")
    @classmethod
    def _per_length_or_area(cls, values: object, read: ModelWrapValidatorHandler[Self]) -> Self:
        """Take a power per metre of depth, or per square metre, as which it is meant anyway."""
        given = values.get("power") if isinstance(values, Mapping) else None
        per = POWER.per(given, ("m", "m^2"))
        if per is None:
            return read(values)
        assert isinstance(values, Mapping)
        source = read({**values, "power": per[0]})
        source._per = per[1]
        return source

    @model_validator(mode="after")
    def _one_strength(self) -> VolumeSource:
        if (self.power is None) == (self.density is None):
            msg = "give either power or density"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _is_traced(self) -> VolumeSource:
        if self.floorplan is None:
            return self
        if not isinstance(self.power, TimeTable) or not isinstance(self.power.table, str):
            msg = "a floorplan wants a power trace, power: {file: gcc.ptrace, interval: 10 us}"
            raise ValueError(msg)
        if self.power.column is not None:
            msg = f"power.column is {self.power.column}; the names of blocks are those of columns"
            raise ValueError(msg)

        # A block without a power may be a slip of the pen as well as one that is off: 0 W says so.
        names = [it.name for it in read_floorplan(Path(self.floorplan))]
        traced = read_trace(Path(self.power.table))[0]
        missing = [it for it in names if it not in traced]
        if missing:
            meant = suggestion(missing[0], traced)
            msg = f"{_some(missing)} in {self.floorplan} and not in {self.power.table}{meant}"
            raise ValueError(msg)
        return self

    def of_blocks(self) -> Iterator[VolumeSource]:
        """Yield one source per block of the floorplan; this one if it has none."""
        if self.floorplan is None:
            yield self
            return

        # Columns are read again when the problem is built, so that texts of runs stay short.
        assert isinstance(self.power, TimeTable)
        kind = Varying(POWER, ("t",))
        for block, box, name in self.blocks():
            power: float | TimeTable = self.power.model_copy(update={"column": block.name})
            if self.power.interval is None:
                names, rows = read_trace(Path(str(self.power.table)))
                column = rows[:, names.index(block.name)]
                power = float(kind.in_unit(column, self.power.unit).mean())
            own = {"floorplan": None, "at": None, "box": box, "name": name, "power": power}
            yield self.model_copy(update={**own, "nearest": True})


def _some(names: list[str]) -> str:
    """A few of some names, with the verb that says that they are."""
    told = listed(names[:_NAMED], "and") if len(names) <= _NAMED else ", ".join(names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{told}{more} {'is' if len(names) == 1 else 'are'}"


def left_over(sources: Sequence[Section]) -> Iterator[tuple[int, str]]:
    """Yield, with the number of a source, names of power traces that no floorplan has.

    Args:
        sources: as written, of which several layers may share one trace.
    """
    known, first = dict[str, set[str]](), dict[str, int]()
    # One trace may be that of all layers of a stack.
    for number, source in enumerate(sources):
        if isinstance(source, VolumeSource) and source.floorplan is not None:
            assert isinstance(source.power, TimeTable)
            file = str(source.power.table)
            blocks = {it.name for it in read_floorplan(Path(source.floorplan))}
            known[file] = known.get(file, set()) | blocks
            first.setdefault(file, number)

    for file, names in known.items():
        if rest := [it for it in read_trace(Path(file))[0] if it not in names]:
            yield first[file], f"{_some(rest)} in {file} and in no floorplan that it belongs to"


class BeamSource(Section):
    """A round Gaussian beam that falls straight on a face of the box and moves over it."""

    type: Literal["beam"]
    name: ProbeName | None = None
    """By which `control` switches it."""
    power: VaryingPower
    """[W]."""
    absorptivity: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The share of the power that becomes heat."""
    d4sigma: PositiveLength
    """The diameter: four standard deviations, twice the radius at which the intensity is 1/e^2 of
    that in the middle [m].
    """
    face: FaceName
    """x-, x+, ..., z+."""
    path: PathSection = PathSection()
    over_time: Annotated[VaryingFactor, BeforeValidator(_as_table)] = 1.0
    """A table, a CSV file or a list of [time, factor], by which the power is multiplied."""

    _written: tuple[int, str] | None = PrivateAttr(default=None)  # see `Location`


def _with_type(value: object) -> object:
    if isinstance(value, dict) and "type" not in value:
        return {"type": "volume", **value}
    return value


Source = Annotated[
    Annotated[VolumeSource | BeamSource, Field(discriminator="type")],
    BeforeValidator(_with_type),
]
