"""Without what only Linux has, as on macOS, everything works on CPUs all the same: neither system is
here, so what they lack is found in the sources, and taken away.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOPS = ("tetris_sim", "cpu_kernels", "scheduler", "apps")
# Of the standard library on Linux, and not on macOS.
ONLY_LINUX = {
    "os": (
        r"sched_\w+|posix_fadvise|posix_fallocate|memfd_create|eventfd\w*|pidfd_open|setns|unshare"
        r"|copy_file_range|splice|getxattr|setxattr|listxattr|removexattr|getrandom|fdatasync"
        r"|setresuid|setresgid|getresuid|getresgid|pipe2|O_TMPFILE|O_PATH|O_DIRECT|O_NOATIME"
    ),
    "signal": r"sigtimedwait|sigwaitinfo|SIGRTM\w+|SIGPWR|SIGSTKFLT|SIGPOLL",
    "socket": r"AF_NETLINK|AF_PACKET|SO_BINDTODEVICE|SOCK_CLOEXEC|SOCK_NONBLOCK|MSG_NOSIGNAL",
    "resource": r"prlimit|RUSAGE_THREAD|RLIMIT_(OFILE|NICE|RTPRIO|RTTIME|SIGPENDING|MSGQUEUE)",
    "select": r"epoll|EPOLL\w+",
    "time": r"CLOCK_(BOOTTIME|TAI)",
    "fcntl": r"F_(OFD_SETLK|SETLEASE|NOTIFY|ADD_SEALS|GET_SEALS)",
    "mmap": r"MAP_(POPULATE|STACK)",
}
# Files that ask Linux, and do without an answer.
ASKING = {"scheduler/machine/machine.py", "cpu_kernels/common/caches.py"}


def of_linux(text: str) -> Iterator[str]:
    """Yield what a module takes of Linux without asking first whether it is there.

    >>> list(of_linux("import os\\nos.sched_yield()\\nopen('/proc/self/statm')"))
    ['os.sched_yield', '/proc/self/statm']
    >>> list(of_linux('if hasattr(os, "sched_yield"):\\n    os.sched_yield()'))
    []
    """
    named = "|".join(rf"\b{module}\.({names})" for module, names in ONLY_LINUX.items())
    if not re.search(rf"/(proc|sys)/|{named}", text):
        return  # most: the rest need not be parsed
    tree = ast.parse(text)
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            if re.match(r"/(proc|sys)/", node.value):
                yield node.value
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module, name = node.value.id, node.attr
            names = ONLY_LINUX.get(module)
            if names and re.fullmatch(names, name) and f'hasattr({module}, "{name}")' not in text:
                yield f"{module}.{name}"


def test_nothing_of_linux_is_taken_for_granted() -> None:
    found = []
    for top in TOPS:
        for path in sorted((ROOT / top).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            names = of_linux(path.read_text())
            found += [f"{place}: {it}" for it in names if it[0] != "/" or place not in ASKING]
    assert found == []


# What every process of the test begins with.
ELSEWHERE = """
import fcntl, os, re, signal, socket, sys

def away(module, names):
    for name in [it for it in dir(module) if re.fullmatch(names, it)]:
        delattr(module, name)

for module, names in KINDS.items():
    __import__(module)
    away(sys.modules[module], names)

def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str):
        if re.match("/(proc|sys)/", arguments[0]):
            raise FileNotFoundError(2, "there is no such file on this system", arguments[0])

sys.addaudithook(refuse)
stat = os.stat

def stat_elsewhere(path, **how):
    refuse("open", [os.fspath(path) if hasattr(path, "__fspath__") else path])
    return stat(path, **how)

os.stat = stat_elsewhere
"""
# The two modules that ask which system it is decide so when they are imported.
COMMAND = """
import sys
import tetris_sim.support.files, numba, numpy
system, sys.platform = sys.platform, "darwin"
import tetris_sim.cpu_kernels.compiled.barrier as barrier
sys.platform = system
assert barrier._FUTEX is None
from tetris_sim.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
CONFIG = """
grid: {shape: [40], size: [1 m]}
model: {type: heat, material: copper}
initial: {type: gaussian, amplitude: 100, sigma: 0.1 m}
boundaries: {"*": {type: insulated}}
time: {dt: 0.1 s, steps: 20}
compute: {method: cpu.plain, threads: 2}
checkpoint: {every: 10 steps}
output: {statistics: {every: 10 steps}, pictures: false}
"""


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration, and with the module that every process begins with."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "sitecustomize.py").write_text(ELSEWHERE.replace("KINDS", repr(ONLY_LINUX)))
    (folder / "rod.yaml").write_text(CONFIG)
    return folder


def tetris_sim(folder: Path, *arguments: str) -> str:
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "TETRIS_SIM_CACHE_DIR": str(folder / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_system_is_another_one(elsewhere: Path) -> None:
    ask = "import os; print(hasattr(os, 'sched_yield'), os.path.isdir('/proc')); open('/proc/stat')"
    environ = {**os.environ, "PYTHONPATH": str(elsewhere)}
    done = subprocess.run(
        [sys.executable, "-c", ask], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("False")
    assert "no such file on this system" in done.stderr


def test_a_run_is_made_stopped_and_continued(elsewhere: Path) -> None:
    tetris_sim(elsewhere, "run", "rod.yaml", "--set", "output.directory=whole")
    tetris_sim(
        elsewhere, "run", "rod.yaml", "--set", "output.directory=part", "--set", "time.steps=10"
    )
    tetris_sim(elsewhere, "run", "rod.yaml", "--set", "output.directory=part", "--resume", "auto")
    whole, part = (
        (elsewhere / name / "statistics.csv").read_text().splitlines()[-1]
        for name in ("whole", "part")
    )
    assert whole == part
    assert "checkpoint_000000000020.h5" in tetris_sim(elsewhere, "info", "whole")


def test_a_plan_a_sweep_and_the_machine(elsewhere: Path) -> None:
    plan = json.loads(tetris_sim(elsewhere, "plan", "rod.yaml", "--json"))
    assert plan["workers"][0]["method"] == "cpu.plain"
    swept = tetris_sim(elsewhere, "sweep", "rod.yaml", "--over", "initial.amplitude=1,2", "-o", "s")
    assert "2 runs, 0 failed" in swept
    assert "memory of the machine" in tetris_sim(elsewhere, "doctor")
