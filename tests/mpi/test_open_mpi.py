"""The runs and losses of the other tests under Open MPI, Debian's, whose library mpi4py takes in
place of its own.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.mpi.test_lost_ranks import (  # noqa: F401 - collected here with another launcher
    cut_off,
    hosts,
    plate,
    state_of,
    test_a_frozen_rank_ends_the_run_in_time,
    test_a_job_that_is_suspended_as_a_whole_goes_on,
    test_a_rank_that_is_frozen_in_mpi_itself_ends_the_others,
    write_frail,
)
from tests.mpi.test_mpiexec import (  # noqa: F401
    ranks_of,
    running,
    test_a_mistake_in_the_configuration_is_said_once,
    test_a_rank_that_is_killed_ends_the_others_and_the_run_can_go_on,
    test_ranks_of_a_launcher_write_the_files_of_one_process,
)
from tetris_sim.outputs.checkpoint.directory import find_checkpoint

pytestmark = [pytest.mark.mpi, pytest.mark.slow]


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> str:
    """mpirun of Open MPI, which by itself refuses root and more ranks than cores."""
    found = shutil.which("mpirun.openmpi")
    libraries = sorted(Path("/usr/lib").glob("*/libmpi.so.*")) if found else []
    if found is None or not libraries:
        pytest.skip("Open MPI is not installed (Debian, Ubuntu: apt install openmpi-bin)")
    path = tmp_path_factory.mktemp("open_mpi") / "mpiexec"
    path.write_text(
        "#!/bin/sh\n"
        f"export MPI4PY_MPIABI=openmpi MPI4PY_LIBMPI={libraries[0]}\n"
        f'exec {found} --oversubscribe {"--allow-run-as-root" * (os.geteuid() == 0)} "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def across() -> str:
    """The same words for mpirun, and what else it is to take."""
    taken = "--mca pml ob1 --mca btl tcp,self --mca oob_tcp_if_include 10.77.0.0/24"
    passed_on = "-x MPI4PY_MPIABI -x MPI4PY_LIBMPI -x PYTHONPATH -x TETRIS_SIM_CACHE_DIR"
    return f"--mca plm_rsh_agent SHELL -H 10.77.0.1,10.77.0.2 {taken} {passed_on}"


def test_sigterm_to_mpirun_ends_a_frozen_rank_too(launcher: str, tmp_path: Path) -> None:
    """Open MPI itself ends its ranks, with an exit code of its own."""
    config, log = write_frail(tmp_path, plate(tmp_path)), tmp_path / "log"
    with running(launcher, 2, config, log) as process:
        pids = ranks_of(process)
        os.kill(pids[1], signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 1, log.read_text()
        deadline = time.monotonic() + 10
        while {state_of(pid) for pid in pids} != {"Z"}:
            assert time.monotonic() < deadline, "some rank lives on"
            time.sleep(0.05)
    checkpoint, _ = find_checkpoint(tmp_path / "out" / "checkpoints")
    assert checkpoint is not None
    checkpoint.close()


def test_a_cut_cable_ends_the_ranks_on_both_sides_and_sigterm_mpirun(
    hosts: tuple[str, str],  # noqa: F811
    launcher: str,
    across: str,
    tmp_path: Path,
) -> None:
    """mpirun waits for the daemon that it has started on the other host."""
    with cut_off(hosts, launcher, across, tmp_path) as (process, _, log):
        assert ": rank 1 on " in log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) != 0, log.read_text()
    checkpoint, _ = find_checkpoint(tmp_path / "out" / "checkpoints")
    assert checkpoint is not None
    checkpoint.close()
