"""A series as one NetCDF-4 file, for xarray, Panoply, CDO and whatever else reads NetCDF.

NetCDF-4 is HDF5 with dimension scales, in the order in which things were made. It needs no NetCDF
library, has no limit of size, and is written block by block; the classic format would need the
whole series in memory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tetris_sim.model.problem import arithmetic_of
from tetris_sim.outputs.blocks import blocks, chunk_shape, slices
from tetris_sim.outputs.provenance import CREATOR
from tetris_sim.outputs.scales import add_positions, add_steps, add_times, auxiliary
from tetris_sim.outputs.series import Series
from tetris_sim.support.files import atomic_hdf5


def write_netcdf(series: Series, records: Sequence[int], path: Path) -> None:
    """Write the given records of a series; deflated, as NetCDF tools do.

    Args:
        series: where the values are.
        records: which of them, ascending.
        path: the file to write.
    """
    grid, dtype = series.grid, arithmetic_of(series.dtype)  # NetCDF has no float16
    itemsize = dtype.itemsize
    chunk = chunk_shape(grid.shape, itemsize)
    with atomic_hdf5(path) as file:
        file.attrs["creator"] = CREATOR
        file.attrs["source"] = series.path.name
        file.attrs["title"] = str(series.meta.get("title", ""))
        file.attrs["history"] = json.dumps({"versions": series.meta.get("versions", {})})

        # Readers take the order of dimensions from the order in which these were made.
        time = add_times(file, [series.times[record] for record in records])
        add_positions(file, grid, spacing=False)
        add_steps(file, [series.steps[record] for record in records], time)

        for k, variable in enumerate(series.variables):
            dataset = file.create_dataset(
                variable.name,
                shape=(len(records), *grid.shape),
                dtype=dtype,
                chunks=(1, *chunk),
                compression="gzip",
                compression_opts=1,
                shuffle=True,
            )
            dataset.attrs.update(
                {
                    "units": variable.unit,
                    "long_name": variable.long_name,
                    "coordinates": auxiliary(grid),
                }
            )
            for axis, name in enumerate(("time", *grid.axis_names)):
                dataset.dims[axis].attach_scale(file[name])

            for i, record in enumerate(records):
                for box in blocks(grid.shape, itemsize, multiple=chunk):
                    dataset[(i, *slices(box))] = series.read(record, k, box)
