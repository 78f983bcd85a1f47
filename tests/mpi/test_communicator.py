"""Communicators: one alone, threads, and ranks of a real launcher can do the same; failures end
all.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.exercises import exercise, expected
from tests.support.thread_ranks import AbortedError, run_ranks
from tetris_sim.errors import ConfigError, ElsewhereError, ExitCode, UnsupportedError
from tetris_sim.scheduler.comm import communicator
from tetris_sim.scheduler.comm.communicator import (
    Alone,
    Communicator,
    everywhere,
    on_root,
    open_communicator,
)
from tetris_sim.scheduler.comm.peers import count_ranks, launched_rank, launcher_listens

HERE = Path(__file__).parents[1] / "support"


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_threads_can_do_what_ranks_must(size: int) -> None:
    assert run_ranks(size, exercise) == [expected(rank, size) for rank in range(size)]


def test_one_alone_needs_nobody() -> None:
    with open_communicator({}) as ranks:
        assert isinstance(ranks, Alone)
        assert exercise(ranks) == expected(0, 1)
    assert "mpi4py" not in sys.modules


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("int MPIX_Query_cuda_support(void) { return 1; }", True),  # Open MPI
        ("int MPIX_Query_cuda_support(void) { return 0; }", False),
        ("int MPIX_GPU_query_support(int kind, int* is) { *is = kind == 0; return 0; }", True),
        ("int MPIX_GPU_query_support(int kind, int* is) { return 1; }", False),  # MPICH
        ("int MPI_Nothing_of_the_kind(void) { return 1; }", False),
    ],
)
def test_a_library_is_asked_whether_it_reads_the_memory_of_gpus(
    text: str, reads: bool, tmp_path: Path
) -> None:
    source, library = tmp_path / "library.c", tmp_path / "library.so"
    source.write_text(text, encoding="utf-8")
    assert COMPILER is not None
    subprocess.run(
        [COMPILER, "-x", "c", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60
    )
    assert communicator._reads_gpus(str(library)) is reads


@pytest.mark.mpi
@pytest.mark.parametrize("size", [2, 4])
def test_the_ranks_of_a_launcher_can_do_what_ranks_must(launcher: str, size: int) -> None:
    done = run_script(launcher, size)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"rank {rank} of {size} agrees" for rank in range(size)
    ]


@pytest.mark.mpi
def test_a_rank_that_fails_says_why_and_ends_all(launcher: str) -> None:
    begin = time.monotonic()
    done = run_script(launcher, 3, "fail")
    assert time.monotonic() - begin < 20
    assert done.returncode == ExitCode.INTERNAL
    assert "rank 1 on" in done.stderr
    assert "ValueError: rank 1 is broken" in done.stderr
    assert (
        done.stderr.count("Traceback") <= 2
    )  # ours, and Python's own if MPI is slower to end the process


def run_script(launcher: str, size: int, *words: str) -> subprocess.CompletedProcess[str]:
    arguments = [
        launcher,
        "-n",
        str(size),
        sys.executable,
        str(HERE / "exercises.py"),
        str(size),
        *words,
    ]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)


def test_what_one_rank_finds_out_all_know() -> None:
    assert run_ranks(3, lambda ranks: on_root(ranks, lambda: ranks.rank + 5)) == [5, 5, 5]
    assert run_ranks(3, lambda ranks: everywhere(ranks, lambda: ranks.rank + 5)) == [5, 6, 7]


@pytest.mark.parametrize("broken", [(0,), (2,), (1, 2)])
def test_if_some_fail_the_first_says_why_and_all_end_alike(broken: tuple[int, ...]) -> None:
    def work(ranks: Communicator) -> tuple[str, int]:
        def fail() -> None:
            if ranks.rank in broken:
                msg = f"rank {ranks.rank} has no such file"
                raise ConfigError(msg)

        with pytest.raises((ConfigError, ElsewhereError)) as caught:
            everywhere(ranks, fail)
        assert ranks.ending
        return type(caught.value).__name__, int(caught.value.exit_code)

    found = run_ranks(4, work)
    assert [name for name, _ in found].count("ConfigError") == 1
    assert found[broken[0]][0] == "ConfigError"
    assert {code for _, code in found} == {2}


def test_an_error_of_rank_0_ends_all_alike() -> None:
    def work(ranks: Communicator) -> str:
        def fail() -> int:
            msg = "no memory"
            raise MemoryError(msg)

        with pytest.raises((MemoryError, ElsewhereError)) as caught:
            on_root(ranks, fail)
        if isinstance(caught.value, ElsewhereError):
            assert caught.value.exit_code == ExitCode.RESOURCES
        return type(caught.value).__name__

    assert run_ranks(3, work) == ["MemoryError", "ElsewhereError", "ElsewhereError"]


def test_a_rank_that_fails_alone_ends_those_that_wait() -> None:
    def work(ranks: Communicator) -> None:
        if ranks.rank == 1:
            msg = "broken"
            raise ValueError(msg)
        with pytest.raises(AbortedError):
            ranks.collect(0)
        ranks.ending = True

    with pytest.raises(ValueError, match="broken"):
        run_ranks(3, work)


def test_ranks_are_counted_as_launchers_tell_them() -> None:
    assert count_ranks({"PMIX_RANK": "1", "SLURM_STEP_NUM_TASKS": "6"}) == 6
    assert (
        count_ranks({"SLURM_STEP_NUM_TASKS": "6"}) == 1
    )  # one process of a job step that MPI does not start
    assert count_ranks({"SLURM_NTASKS": "6"}) == 1
    assert launched_rank({}) == 0
    assert launched_rank({"PMI_RANK": "3", "PMI_SIZE": "4"}) == 3
    assert launched_rank({"OMPI_COMM_WORLD_RANK": "2", "PMIX_RANK": "2"}) == 2
    assert launcher_listens({"PMI_FD": "9", "PMI_HOSTNAME": "node"}) == 9  # Hydra
    assert launcher_listens({"PMI_FD": "9", "SLURM_STEP_ID": "0"}) == -1  # Slurm's PMI 2


@pytest.mark.mpi
def test_a_launcher_of_another_mpi_is_noticed() -> None:
    code = (
        "from tetris_sim.scheduler.comm.communicator import open_communicator\nwith "
        "open_communicator(): pass"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "started 2 ranks, but the library that mpi4py found (MPICH" in done.stderr
    assert "sees 1: the two do not belong together" in done.stderr


def test_a_launcher_without_mpi4py_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    said = r"started 4 ranks, but MPI cannot be used from Python .*pip install 'tetris-sim\[mpi\]'"
    with pytest.raises(UnsupportedError, match=said), open_communicator({"PMI_SIZE": "4"}):
        pass
