"""Launcher: what MPI's launchers tell their processes, before MPI is initialised."""

from __future__ import annotations

import os
from collections.abc import Mapping


def count_ranks(environ: Mapping[str, str] | None = None) -> int:
    """How many MPI ranks the launcher started, from what MPICH, Open MPI, Intel MPI and Slurm tell
    their processes.
    """
    environ = os.environ if environ is None else environ
    names = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"]
    if (
        "PMIX_RANK" in environ
    ):  # srun --mpi=pmix; without it, a job of many tasks may run one process
        names.append("SLURM_STEP_NUM_TASKS")
    sizes = [environ.get(name, "") for name in names]
    return max([1, *(int(size) for size in sizes if size.isdigit())])


def launched_rank(environ: Mapping[str, str] | None = None) -> int:
    """Which of the launcher's ranks this process is, before MPI is initialised; 0 without a
    launcher.
    """
    environ = os.environ if environ is None else environ
    names = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK")
    ranks = [environ.get(name, "") for name in names]
    return next((int(rank) for rank in ranks if rank.isdigit()), 0)
