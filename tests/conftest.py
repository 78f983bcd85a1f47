"""What every test gets: random numbers that repeat, floating-point errors that raise, a cache of
the session's own.

Marked tests that cannot run, or were not asked for, are skipped with the reason and the remedy, and
counted at the end: green never means that nothing ran.
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy as np
import pytest

if TYPE_CHECKING:
    from tetris_sim.cpu_kernels.common.stepper import ThreadTeam

FULL = "--run-full asks for it (make test-all)"
KEPT = Path(__file__).resolve().parents[1] / ".compiled"  # ignored by git; CI may keep it

hypothesis.settings.register_profile("dev", deadline=None, print_blob=True)
hypothesis.settings.register_profile(
    "ci", deadline=None, print_blob=True, derandomize=True, database=None
)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cold", action="store_true", help="compile all kernels anew, as a fresh machine does"
    )
    parser.addoption(
        "--run-full", action="store_true", help="run the whole product of cases too (marker full)"
    )


def pytest_configure(config: pytest.Config) -> None:
    # One cache for the session, its xdist workers and every process a test starts: a kernel is
    # compiled once, and nobody's own cache is read or written.
    if not hasattr(config, "workerinput"):
        cache = tempfile.mkdtemp(prefix="tetris_sim_tests_")
        os.environ["TETRIS_SIM_CACHE_DIR"] = cache
        if not config.getoption("--cold"):
            keep_compiled_code(Path(cache))
        os.environ.pop("TETRIS_SIM_NO_CACHE", None)
        # Where no bytecode may lie beside sources, every process would compile them anew.
        if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
            os.environ["PYTHONPYCACHEPREFIX"] = str(Path(cache) / "bytecode")
        config.add_cleanup(lambda: shutil.rmtree(cache, ignore_errors=True))


def keep_compiled_code(cache: Path) -> None:
    """Let the compiled kernels of earlier runs serve this one; what was tuned or measured does not.

    Compiled code is named by the sources that it depends on, and Numba, NVRTC and the emulator tell
    their versions and the processor apart, so nothing stale can be used. One digest of sources has one folder;
    folders that no run has begun with for a day go, or edits would fill the disk.
    """
    from tetris_sim.support.files import digest_of

    tops = (KEPT.parent / top for top in ("cpu_kernels", "gpu_kernels", "tetris_sim/model"))
    files = sorted(path for top in tops for path in top.rglob("*"))
    kept = KEPT / digest_of(it for it in files if it.suffix in {".py", ".cu", ".cuh"})[:16]
    for part in ("kernels", "cuda", "emulation"):
        (kept / part).mkdir(parents=True, exist_ok=True, mode=0o700)
        (cache / part).symlink_to(kept / part)

    os.utime(kept)
    for other in KEPT.iterdir():
        if time.time() - other.stat().st_mtime > 86_400:
            shutil.rmtree(other, ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    reasons = {
        "full": None if config.getoption("--run-full") else FULL,
        "gpu": why_no_gpu() if any(item.get_closest_marker("gpu") for item in items) else None,
        "mpi": why_no_mpi(),
    }
    for item in items:
        for marker, reason in reasons.items():
            if reason is not None and item.get_closest_marker(marker) is not None:
                item.add_marker(pytest.mark.skip(reason=f"{marker}: {reason}"))


def why_no_gpu() -> str | None:
    """Why no GPU test can run here, and what would help; None if they can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA driver here (make test-gpu on a machine with an NVIDIA GPU)"
    count = ctypes.c_int()
    if (
        driver.cuInit(0) != 0
        or driver.cuDeviceGetCount(ctypes.byref(count)) != 0
        or count.value == 0
    ):
        return "no CUDA device here (make test-gpu on a machine with an NVIDIA GPU)"
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed (make test-gpu installs it)"
    return None


def why_no_mpi() -> str | None:
    """Why no MPI test can run here, and what would help; None if they can."""
    if importlib.util.find_spec("mpi4py") is None:
        return "mpi4py is not installed (make test-mpi installs it)"
    if mpiexec() is None:
        return "there is no mpiexec (make test-mpi installs one)"
    return None


def mpiexec() -> str | None:
    """The launcher that belongs to this environment, or else the machine's."""
    return shutil.which(
        "mpiexec",
        path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counts: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        if isinstance(report.longrepr, tuple):
            counts[report.longrepr[2].removeprefix("Skipped: ")] += 1
    for reason, count in sorted(counts.items()):
        terminalreporter.write_line(f"did not run: {count} x {reason}", yellow=True)


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> np.random.Generator:
    """Random numbers that differ between tests and repeat between runs."""
    return np.random.default_rng(list(request.node.nodeid.encode()))


@pytest.fixture(autouse=True)
def _floating_point_errors_raise() -> Iterator[None]:
    with np.errstate(all="raise", under="ignore"):
        yield


@pytest.fixture(autouse=True)
def _methods_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    # The tuner goes on without a method that fails, and says so in its notes only. Here one that
    # does not compile fails the test.
    def described(error: Exception) -> str:
        of_compilers = type(error).__module__.startswith(("numba", "llvmlite", "cupy"))
        if of_compilers or isinstance(error, NameError | AttributeError):
            raise error
        return str(describe(error))

    tuning = "tetris_sim.scheduler.tuning."
    if f"{tuning}candidates" not in sys.modules:
        return
    describe = sys.modules[f"{tuning}candidates"].describe_failure
    for name in ("candidates", "compete", "tune"):
        if (module := sys.modules.get(tuning + name)) is not None:
            monkeypatch.setattr(module, "describe_failure", described)


@pytest.fixture(autouse=True)
def _figures_are_closed() -> Iterator[None]:
    # xarray's `.plot()`, in documents and notebooks, draws through pyplot, which keeps a figure
    # until somebody closes it.
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(autouse=True)
def _logging_as_after_import() -> Iterator[None]:
    # The command line sets the package's logger up for a terminal, with a handler on the captured
    # stderr of one test. A fixture of a module may have done so before this one.
    _reset_logging()
    yield
    _reset_logging()


def _reset_logging() -> None:
    logger = logging.getLogger("tetris_sim")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


@pytest.fixture(scope="session")
def launcher() -> str:
    """Path of mpiexec, for tests marked mpi."""
    path = mpiexec()
    assert path is not None
    return path


@pytest.fixture(scope="module")
def gpu() -> Iterator[Any]:
    """GPU 0, for tests marked gpu."""
    from tetris_sim.gpu_kernels.common.device import GpuDevice

    device = GpuDevice(0)
    yield device
    device.close()


@pytest.fixture(scope="module")
def teams() -> Iterator[dict[int, ThreadTeam]]:
    """Teams of one, two and three threads."""
    from tetris_sim.cpu_kernels.common.stepper import ThreadTeam

    teams = {size: ThreadTeam(size) for size in (1, 2, 3)}
    yield teams
    for team in teams.values():
        team.close()


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the CPU methods there are."""
    return lambda *methods: monkeypatch.setattr("tetris_sim.cpu_kernels.METHODS", methods)


@pytest.fixture(scope="session")
def _plain_is_compiled() -> None:
    """What made-up methods compute with is compiled, so that no budget is spent on it."""
    from tests.support.tuner_cases import problem_of
    from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
    from tetris_sim.scheduler.machine.placement import ComputeResource
    from tetris_sim.scheduler.tuning.measure import check_method

    assert check_method(problem_of(), CpuPlainMethod(), {}, place=ComputeResource(1)) is None


@pytest.fixture
def kept_choices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _plain_is_compiled: None) -> Path:
    """Where the tuner keeps choices; kernels stay in the session's cache. Timings are short:
    methods differ by much.
    """
    monkeypatch.setattr("tetris_sim.scheduler.tuning.tuned.cache_directory", lambda part: tmp_path)
    monkeypatch.setattr("tetris_sim.scheduler.tuning.compete._ROUNDS", 2)
    monkeypatch.setattr("tetris_sim.scheduler.tuning.compete._ROUND_SECONDS", 0.01)
    return tmp_path


@pytest.fixture
def _nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods are taken by their best guess, as if `tuning_budget` were 0."""
    monkeypatch.setattr("tetris_sim.config.sections.schema._TUNING_SECONDS", 0.0)


@pytest.fixture(scope="session")
def ended_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For tests/faults: the results of 20 steps; whoever changes a file makes a copy."""
    from tests.support.fault_runs import tetris_here, write_plate

    folder = tmp_path_factory.mktemp("ended_run")
    config = write_plate(folder, steps=20, often=10, checkpoint=10, fields=10)
    assert tetris_here("run", config).returncode == 0
    return folder / "out"
