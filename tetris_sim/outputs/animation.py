"""A series as a film: one scale of colours for all of it, and the time in the picture."""

from __future__ import annotations

import contextlib
import functools
import itertools
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import UnsupportedError
from tetris_sim.outputs.compositions import draw_state
from tetris_sim.outputs.drawing import LINE_COLOUR, Drawing
from tetris_sim.outputs.labels import Caption, moment
from tetris_sim.outputs.sampling import Cut, Plane, sample
from tetris_sim.outputs.series import Series
from tetris_sim.outputs.sheet import FIELD_COLOURS, Limits, extent, widened
from tetris_sim.support.files import atomic_file

Pixels = npt.NDArray[np.uint8]  # (rows, columns, 3)
_MOST_POINTS = 600  # per axis: a film is smaller than a picture
_DPI = 100


@dataclass(frozen=True)
class Film:
    """What a film shows.

    Attributes:
        series: where the values are.
        records: which of them, ascending.
        variable: which one.
        cuts: through which planes.
        caption: what the pictures say.
    """

    series: Series
    records: Sequence[int]
    variable: int
    cuts: Sequence[Cut]
    caption: Caption

    def planes(self, record: int) -> tuple[Plane, ...]:
        """The values of one frame."""
        read = functools.partial(self.series.read, record, self.variable)
        return sample(read, self.series.grid, self.cuts, most=_MOST_POINTS)

    def moment(self, record: int) -> str:
        """When one frame is."""
        return moment(
            self.series.steps[record], self.series.times[record], timeless=self.series.timeless
        )

    def limits(self) -> Limits:
        """Lowest and highest value of all frames."""
        both = [extent(self.planes(record)) for record in self.records]
        return widened((min(low for low, _ in both), max(high for _, high in both)))

    def first(self) -> Drawing:
        """The first frame, which the others change."""
        record = self.records[0]
        return draw_state(
            self.planes(record), self.caption, moment=self.moment(record), limits=self.limits()
        )


def write_gif(film: Film, path: Path, *, frames_per_second: float) -> None:
    """Write an animated GIF that repeats for ever."""
    from PIL import Image

    palette = _palette()

    def indexed(pixels: Pixels) -> Image.Image:
        frame = Image.fromarray(_nearest(pixels, palette))
        frame.putpalette(palette.tobytes())
        return frame

    frames = (indexed(pixels) for pixels in _frames(film, film.first()))
    first = next(frames)
    with atomic_file(path) as part:
        first.save(
            part,
            format="GIF",
            save_all=True,
            append_images=frames,
            # Below 20 ms browsers slow down to 100 ms.
            duration=max(20, round(1000 / frames_per_second)),
            loop=0,
            optimize=False,
        )


def write_mp4(film: Film, path: Path, *, frames_per_second: float) -> None:
    """Write an MP4 film through the program ffmpeg.

    Raises:
        UnsupportedError: ffmpeg is not installed, or fails.
    """
    program = shutil.which("ffmpeg")
    if program is None:
        msg = (
            f"{path} needs the program ffmpeg, which was not found; install it, or write a .gif, "
            "which needs nothing"
        )
        raise UnsupportedError(msg)

    frames = (_even(pixels) for pixels in _frames(film, film.first()))
    first = next(frames)
    size = f"{first.shape[1]}x{first.shape[0]}"
    rate = f"{frames_per_second:g}"
    source = f"-f rawvideo -pix_fmt rgb24 -s {size} -r {rate} -i -".split()

    with atomic_file(path) as part:
        target = ["-an", "-pix_fmt", "yuv420p", "-f", "mp4", str(part)]
        with subprocess.Popen(
            [program, "-y", "-loglevel", "error", *source, *target],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as encoder:
            said = _feed(encoder, itertools.chain([first], frames))

        if encoder.returncode != 0:
            msg = (
                f"{path} cannot be written: ffmpeg says {said.strip() or encoder.returncode}; "
                "write a .gif instead"
            )
            raise UnsupportedError(msg)


def _palette() -> Pixels:
    """256 colours for every frame alike: those of the scale, of text and of lines, (256, 3)."""
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    scale = colormaps[FIELD_COLOURS](np.linspace(0, 1, 192))[:, :3]
    greys = np.linspace(0, 1, 48)[:, None].repeat(3, axis=1)
    share = np.linspace(0, 1, 16)[:, None]
    lines = share * to_rgb(LINE_COLOUR) + (1 - share)
    return np.round(255 * np.concatenate([scale, greys, lines])).astype(np.uint8)


def _nearest(pixels: Pixels, palette: Pixels) -> Pixels:
    """Index of the colour of the palette nearest to each pixel; Pillow's search rounds colours."""
    packed = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], dtype=np.uint32)
    numbers, place = np.unique(packed, return_inverse=True)
    colours = np.stack([numbers >> 16, numbers >> 8 & 255, numbers & 255], axis=1).astype(np.int32)
    nearest = np.empty(len(colours), dtype=np.uint8)
    for start in range(0, len(colours), 1024):
        differences = colours[start : start + 1024, None, :] - palette[None].astype(np.int32)
        nearest[start : start + 1024] = (differences**2).sum(axis=2).argmin(axis=1)
    return nearest[place].reshape(pixels.shape[:2])


def _frames(film: Film, drawing: Drawing) -> Iterator[Pixels]:
    for record in film.records:
        drawing.show(film.planes(record), film.moment(record))
        yield drawing.pixels(_DPI)


def _feed(encoder: subprocess.Popen[bytes], frames: Iterable[Pixels]) -> str:
    """Hand frames to the encoder until the last one or until it gives up; what it complained of."""
    assert encoder.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        for frame in frames:
            encoder.stdin.write(frame.tobytes())
    with contextlib.suppress(BrokenPipeError):
        encoder.stdin.close()
    encoder.stdin = None  # communicate() would close it again
    return encoder.communicate()[1].decode(errors="replace")


def _even(pixels: Pixels) -> Pixels:
    """The picture with an even number of rows and columns, as films need."""
    rows, columns = pixels.shape[0] % 2, pixels.shape[1] % 2
    return np.pad(pixels, ((0, rows), (0, columns), (0, 0)), mode="edge")
