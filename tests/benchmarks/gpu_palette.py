"""How fast kernels of bodies of a few materials are, without faces: on a GPU,

    python tests/benchmarks/gpu_palette.py 2d|3d [SIZE [PATTERN]]

Every kernel is compared with plain steps after one launch, and timed for several bodies and lengths
of what a block streams. A line has the kernel's parameters; then for each body the rate [GStencil/s]
and the length that was best.
"""

from __future__ import annotations

import dataclasses
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from tetris_sim.gpu_kernels.common.build import compile_source
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import Box3, by_value, memory_argument
from tetris_sim.gpu_kernels.fused.kernel import CompiledKernel, FusedKernel, Launch
from tetris_sim.gpu_kernels.stream.palette import palette_kind, palette_numbers
from tetris_sim.gpu_kernels.stream.palette_2d import (
    PaletteTile,
    palette_2d_kernel,
    palette_2d_words,
)
from tetris_sim.gpu_kernels.stream.palette_3d import (
    PaletteTile3D,
    palette_3d_kernel,
    palette_3d_words,
)
from tetris_sim.gpu_kernels.stream.words import WordsKernel

N_IDS = 8
ROOM = 64  # points around the box, where nothing is written
TILES_2D = (
    (12, 8, 6, 4, 2, 1, 0, 1, 0),
    (10, 8, 6, 4, 2, 1, 0, 1, 0),
    (12, 6, 4, 4, 2, 1, 1, 1, 0),
    (12, 6, 4, 4, 2, 1, 1, 16, 0),
)
TILES_3D = ((3, 5, 8, 1, 3, 1), (3, 5, 8, 1, 3, 16), (2, 5, 8, 1, 3, 1))
BODIES_2D = ("one", "rectangles", "voronoi", "discs", "random")
BODIES_3D = ("one", "rectangles", "voronoi", "random")
LENGTHS_2D, LENGTHS_3D = (0, 300, 500, 800, 1300), (0, 40, 64, 96, 128, 192)

PLAIN = r"""
extern "C" __global__ void plain(const double* u, double* to, const unsigned char* ids,
    const double* k, const double* rate, const double* q, int n_ids, int axes, int nz, int ny, int nx) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    const int z = blockIdx.z;
    const long long row = nx, plane = row * ny, at = z * plane + y * row + x;
    if (x < 1 || y < 1 || x >= nx - 1 || y >= ny - 1) return;
    if (axes == 3 && (z < 1 || z >= nz - 1)) return;
    const int id = ids[at];
    const long long by[3] = {plane, row, 1};
    double sum = q[id];
    for (int axis = 0; axis < axes; ++axis)
        for (int side = -1; side <= 1; side += 2) {
            const long long other = at + side * by[3 - axes + axis];
            sum = fma(k[(axis * n_ids + id) * n_ids + ids[other]], u[other] - u[at], sum);
        }
    to[at] = fma(rate[id], sum, u[at]);
}
extern "C" __global__ void voronoi(unsigned char* ids, const float* seeds, int n, int n_ids,
    int nz, int ny, int nx) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, z = blockIdx.z;
    if (x >= nx) return;
    float best = 1e30f;
    int which = 0;
    for (int s = 0; s < n; ++s) {
        const float dx = x - seeds[3 * s], dy = y - seeds[3 * s + 1], dz = z - seeds[3 * s + 2];
        const float d = dx * dx + dy * dy + dz * dz;
        if (d < best) { best = d; which = s; }
    }
    ids[((long long)z * ny + y) * nx + x] = which % n_ids;
}
"""


class Bench:
    """A grid of n points along each axis with room around it, and a stable palette."""

    def __init__(self, ndim: int, n: int) -> None:
        self.device = GpuDevice(0)
        self.cupy, self.ndim, self.n = self.device.cupy, ndim, n
        self.room = (8 if ndim == 3 else 0, 8 if ndim == 3 else ROOM, ROOM)
        self.counts = (n if ndim == 3 else 1, n, n)
        self.shape = tuple(c + 2 * r for c, r in zip(self.counts, self.room, strict=True))
        rng = np.random.default_rng(2)
        k, rate = rng.uniform(0.3, 5, N_IDS), rng.uniform(0.5, 2, N_IDS)
        mean = 2 * k[:, None] * k / (k[:, None] + k)
        mean *= 0.9 / (rate * 2 * ndim * mean.max(axis=1)).max()
        self.conductance, self.rate = np.stack([mean] * ndim), rate
        self.sources = rng.uniform(-0.1, 0.1, (32, N_IDS))
        self.module = self.cupy.RawModule(code=PLAIN)
        self.start = self.cupy.random.random(self.shape)
        self.arrays = [self.start.copy(), self.start.copy()]
        self.memory = memory_argument(
            self.shape[1] * self.shape[2],
            self.shape[2],
            tuple((-r, c + r) for c, r in zip(self.counts, self.room, strict=True)),  # type: ignore[arg-type]
        )

    @property
    def box(self) -> Box3:
        z, y, x = ((0, c) for c in self.counts)
        return z, y, x

    def owned(self, array: Any) -> Any:
        """From the first owned point on."""
        first = np.ravel_multi_index(self.room, self.shape)
        return array.reshape(-1)[int(first) :]

    def inside(self, array: Any) -> Any:
        return array[tuple(slice(r, r + c) for r, c in zip(self.room, self.counts, strict=True))]

    def body(self, name: str) -> Any:
        """Ids of all points."""
        rng, n = np.random.default_rng(5), self.n
        ids = self.cupy.zeros(self.shape, np.uint8)
        nz, ny, nx = self.shape
        if name == "rectangles":
            for _ in range(60):
                spans = []
                for axis, c in enumerate(self.counts):
                    length, low = (
                        rng.integers(n // 20, n // (4 if self.ndim == 2 else 3)),
                        rng.integers(0, n),
                    )
                    spans.append(slice(None) if c == 1 else slice(int(low), int(low + length)))
                ids[tuple(spans)] = int(rng.integers(0, N_IDS))
        elif name == "voronoi":
            seeds = rng.uniform(0, 1, (200, 3)) * np.array([nx, ny, nz])
            self.module.get_function("voronoi")(
                (-(-nx // 128), ny, nz),
                (128, 1, 1),
                (
                    ids,
                    self.cupy.asarray(seeds.astype("f4")),
                    *map(np.int32, (200, N_IDS, nz, ny, nx)),
                ),
            )
        elif name == "discs":
            for _ in range(2000):
                r = int(rng.uniform(0.3, 1.7) * 80 * n / 10240) + 2
                y, x = (int(v) for v in rng.integers(r, n - r, 2))
                yy, xx = np.ogrid[-r : r + 1, -r : r + 1]
                part = ids[0, y - r + ROOM : y + r + 1 + ROOM, x - r + ROOM : x + r + 1 + ROOM]
                self.cupy.maximum(
                    part, self.cupy.asarray((yy * yy + xx * xx <= r * r).astype(np.uint8)), out=part
                )
        elif name == "random":
            ids[...] = self.cupy.random.randint(0, N_IDS, self.shape, dtype=np.uint8)
        return ids

    def plain_steps(self, ids: Any, steps: int, sources: bool) -> Any:
        """The state after so many plain steps."""
        k, rate = (self.cupy.asarray(part) for part in (self.conductance, self.rate))
        a, b = self.arrays
        a[...], b[...] = self.start, self.start
        nz, ny, nx = self.shape
        for step in range(steps):
            q = self.cupy.asarray(self.sources[step] * sources)
            self.module.get_function("plain")(
                (-(-nx // 64), -(-ny // 4), nz),
                (64, 4, 1),
                (a, b, ids, k, rate, q, *map(np.int32, (N_IDS, self.ndim, nz, ny, nx))),
            )
            a, b = b, a
        return self.inside(a).copy()

    def prepared(self, words: WordsKernel, ids: Any) -> tuple[Any, ...]:
        """Arguments of a kernel behind the length of a chunk."""
        box, tile = self.box, words.written[0]
        if self.ndim == 3:  # with a spare one
            box = (box[0], (0, (-(-self.n // tile) + 1) * tile), box[2])
        z, y, x = ((-r, c + r) for c, r in zip(self.counts, self.room, strict=True))
        made = words.arrays(box, self.cupy.zeros)
        for launch in words.launches(ids, (z, y, x), made, box):
            function = self.device.function(words.source, launch.entry, words.defines)
            function(launch.grid, (launch.threads, 1, 1), launch.arguments)
        where = (0,) if self.ndim == 2 else (0, 0)
        numbers = (*words.span(box), *where)
        place = by_value(np.array([0, N_IDS, 1, N_IDS], np.int32))
        sources = self.cupy.asarray(self.sources)
        return (made.words, made.runs, *map(np.int32, numbers), sources, place, np.int32(0))

    def time(self, launch: Any) -> float:
        """Seconds: the median of five, of three launches each."""
        launch(0), launch(1)
        times = []
        for _ in range(5):
            begin, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
            begin.record()
            for k in range(3):
                launch(k)
            end.record()
            end.synchronize()
            times.append(self.cupy.cuda.get_elapsed_time(begin, end) / 3e3)
        return float(np.median(times))


def variants(
    ndim: int, bench_k: Any, rate: Any, sources: bool
) -> list[tuple[Any, FusedKernel, WordsKernel]]:
    kind = palette_kind(bench_k, sources=sources)
    numbers = palette_numbers(bench_k, rate, kind, "float64")
    found: list[tuple[Any, FusedKernel, WordsKernel]] = []
    for values in TILES_2D if ndim == 2 else TILES_3D:
        tile = PaletteTile(*values) if ndim == 2 else PaletteTile3D(*values)
        parameters = dataclasses.asdict(tile)
        if isinstance(tile, PaletteTile) and tile.fits(kind, 8):
            found.append(
                (
                    values,
                    palette_2d_kernel(kind, numbers, parameters),
                    palette_2d_words(parameters, 8),
                )
            )
        elif isinstance(tile, PaletteTile3D) and tile.fits(kind):
            found.append(
                (values, palette_3d_kernel(kind, numbers, parameters), palette_3d_words(parameters))
            )
    return found


def compiled(job: tuple[str, dict[str, str | int]]) -> str:
    code = compile_source(job[0], job[1], "sm_90")
    return f"{code.registers} {code.spilled}"


def main(ndim: int, n: int, pattern: str) -> None:
    """Print the table."""
    bench = Bench(ndim, n)
    bodies = BODIES_2D if ndim == 2 else BODIES_3D
    every = [
        (sources, *variant)
        for sources in (False, True)
        for variant in variants(ndim, bench.conductance, bench.rate, sources)
    ]
    with ProcessPoolExecutor(12) as pool:
        said = list(pool.map(compiled, [(k.source, dict(k.defines)) for _, _, k, _ in every]))
    lines = [f"{k.entry} {v} sources={s} {r}" for (s, v, k, _), r in zip(every, said, strict=True)]
    lines_of: dict[int, list[str]] = {number: [] for number in range(len(every))}
    for body in bodies:
        ids = bench.body(body)
        for number, (sources, values, kernel, words) in enumerate(every):
            if pattern not in lines[number] or (sources and body in ("rectangles", "discs")):
                continue
            wanted = bench.plain_steps(ids, kernel.depth, sources)
            function = CompiledKernel(kernel, bench.device)
            more = bench.prepared(words, ids)
            best = (float("inf"), 0)
            for length in LENGTHS_2D if ndim == 2 else LENGTHS_3D:
                cut = function.cut(bench.box)
                grid, arguments = list(cut.grid), list(cut.arguments)
                if length:
                    assert kernel.stream is not None
                    unit, repeated = kernel.stream.unit, kernel.stream.repeated
                    length = -(-(length + repeated) // unit) * unit - repeated
                    grid[1 if ndim == 2 else 2] = -(-n // length)
                    arguments[2] = np.int32(length)
                launch_of = Launch((grid[0], grid[1], grid[2]), (*arguments, *more))
                a, b = bench.arrays

                def launch(k: int, launch_of: Launch = launch_of) -> None:
                    one, other = (a, b) if k % 2 == 0 else (b, a)
                    function.launch(bench.owned(one), bench.owned(other), bench.memory, launch_of)

                a[...], b[...] = bench.start, bench.start
                launch(0)
                error = float(
                    bench.cupy.abs(bench.inside(b) - wanted).max() / bench.cupy.abs(wanted).max()
                )
                assert error < 1e-13, (body, lines[number], length, error)
                best = min(best, (bench.time(launch), length))
            rate = kernel.depth * float(np.prod(bench.counts)) / best[0] / 1e9
            lines_of[number].append(f"{body} {rate:.0f} <{best[1]}>")
            del more
        print(body, "done", flush=True)
    for number, line in enumerate(lines):
        if lines_of[number]:
            print(line, "|", "  ".join(lines_of[number]), flush=True)


if __name__ == "__main__":
    asked = sys.argv[1:] + ["10240"] * (len(sys.argv) < 3)
    main(int(asked[0][0]), int(asked[1]), asked[2] if len(asked) > 2 else "")
