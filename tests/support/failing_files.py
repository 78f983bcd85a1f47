"""Let every file operation of a run fail once, and see what comes of it.

`python tests/support/failing_files.py 2000 --json docs/trust/operations.json` draws two thousand of
them; `--all` tries each operation of each kind of run by each fault. A shim that is built from
`failing_files.c` counts what a run does to files in its folder, in Python and in the HDF5 library,
and lets one operation fail: by an error of the system once or from then on, by a short write, by a
kill before or after. Allowed are the right files, or a sentence with the right exit code and the
right files after `--resume auto`. Nothing that was asked for may be missing after exit code 0.

A run is a fork of a process that has loaded the program and the shim; ranks start by mpiexec.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":  # beside the tests it is imported with what pytest puts on the path
    sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from tests.support.fault_runs import contents, write_plate
from tests.support.jobs import arguments, tell
from tetris_sim.__main__ import main as tetris_main

SOURCE = Path(__file__).with_suffix(".c")
_LONG = 300.0  # seconds after which a run hangs
_CODES = (1, 2, 3, 75)  # of a run that ends with a sentence; 1 is of mpiexec alone

FAIL, SHORT, BEFORE, AFTER = range(1, 5)  # as in failing_files.c
# name -> how, error, whether only once
FAULTS = {
    "EIO": (FAIL, errno.EIO, True),
    "EIO from then on": (FAIL, errno.EIO, False),
    "ENOSPC": (FAIL, errno.ENOSPC, True),
    "ENOSPC from then on": (FAIL, errno.ENOSPC, False),
    "EACCES": (FAIL, errno.EACCES, True),
    "EINTR": (FAIL, errno.EINTR, True),
    "short write": (SHORT, 0, True),
    "killed before": (BEFORE, 0, True),
    "killed after": (AFTER, 0, True),
}


class Control(ctypes.Structure):
    """`struct control` of the shim."""

    _fields_ = (
        ("count", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
        ("at", ctypes.c_int64),
        ("how", ctypes.c_int32),
        ("error", ctypes.c_int32),
        ("once", ctypes.c_int32),
        ("hits", ctypes.c_int32),
        ("folder", ctypes.c_char * 1024),
        ("named", ctypes.c_char * 256),
    )


def why_no_shim() -> str | None:
    """Why the shim cannot be built here."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        return "the shim that lets file operations fail needs Linux and a C compiler"
    return None


def build_shim(folder: Path) -> dict[str, str]:
    """Build the shim; the variables of the environment of a process that is to load it."""
    shim, shared = folder / "failing_files.so", folder / "control"
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(shim), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    shared.write_bytes(bytes(ctypes.sizeof(Control)))
    return {"LD_PRELOAD": str(shim), "FAILING_FILES": str(shared)}


def open_control() -> Control:
    """What this process and those it starts share with the shim."""
    with Path(os.environ["FAILING_FILES"]).open("r+b") as file:
        return Control.from_buffer(mmap.mmap(file.fileno(), 0))


# Kinds of runs. Each has a folder to begin with, the words of the command that is attacked and those
# that put things right, and what both leave.

BODY = """
schema: 1
grid: {shape: [16, 12], size: [16 mm, 12 mm]}
model:
  type: heat
  materials: {hot: {conductivity: 45, density: 7800, specific_heat: 480}}
  regions:
    - {material: copper}
    - {material: hot, box: {x: [4 mm, 9 mm], y: [3 mm, 9 mm]}}
  sources: [{power: 1 W, material: hot}]
initial: {type: constant, value: 20}
boundaries: {"*": {type: robin, h: 50, ambient: 20}}
time: TIME
compute: {threads: 1, tuning_budget: 0METHOD}
output: {directory: DIRECTORY, pictures: false, fields: {every: 10 steps}, statistics: {every: 5 steps}}
checkpoint: {every: 10 steps, keep: 2}
"""
REACTION = """
schema: 1
grid: {shape: [16, 12], size: [16 m, 12 m]}
model:
  type: pde
  fields:
    u: {equation: "laplace(u) + u - u**3 - v", initial: {type: expression, expression: "sin(x)"}}
    v: {equation: "u - v", initial: {type: constant, value: 0}}
boundaries: {"*": {type: periodic}}
time: {dt: 0.1 s, steps: 40}
compute: {threads: 1, method: cpu.plain}
output: {directory: DIRECTORY, pictures: false, fields: {every: 10 steps}, statistics: {every: 5 steps}}
checkpoint: {every: 10 steps, keep: 2}
"""


@dataclass(frozen=True)
class Kind:
    """A kind of run.

    Attributes:
        prepare: makes what the run begins with, in a folder that is there; its configuration.
        words: the arguments of the program, from the configuration.
        again: those that go on after a fault; `words` if not given.
        ranks: processes of mpiexec; 0 for none.
        kept: whether a file that was made must be the same.
    """

    prepare: Callable[[Path], Path]
    words: Callable[[Path], Sequence[object]]
    again: Callable[[Path], Sequence[object]] | None = None
    ranks: int = 0
    kept: Callable[[str], bool] = lambda name: True


def _plate(folder: Path, **options: int) -> Path:
    given = {"steps": 60, "often": 20, "checkpoint": 20, "fields": 20} | options
    config = write_plate(folder, **given, two="20 steps")  # type: ignore[arg-type]
    config.write_text(config.read_text().replace("[31, 23]", "[16, 12]"))
    return config


def _text(text: str) -> Callable[[Path], Path]:
    def prepare(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "case.yaml"
        path.write_text(text.replace("DIRECTORY", str(folder / "out")))
        return path

    return prepare


def _body(time: str, method: str = "") -> Callable[[Path], Path]:
    return _text(BODY.replace("TIME", time).replace("METHOD", method))


def _ended(folder: Path) -> Path:
    config = _plate(folder)
    assert forked(["run", config], folder.parent / "prepared.log") == 0
    return config


def _run(config: Path) -> list[object]:
    return ["run", config, "--resume", "auto"]


def _restart(config: Path) -> list[object]:
    return ["restart", config.parent / "out", "--set", "time.steps=120"]


def _sweep(config: Path) -> list[object]:
    over = "boundaries.x-.value=50,60"
    return ["sweep", config, "--over", over, "-o", config.parent / "out", "--processes", 1]


def _report(config: Path) -> list[object]:
    page = config.parent / "page.html"
    return ["report", config.parent / "out", "-o", page, "--overwrite"]


def _export(config: Path) -> list[object]:
    target = config.parent / "field.vtkhdf"
    return ["export", config.parent / "out", "-o", target, "--overwrite"]


KINDS = {
    "explicit": Kind(_plate, _run),
    "materials": Kind(_body("{steps: 40}", ", method: cpu.plain"), _run),
    "implicit": Kind(_body("{scheme: implicit, dt: 1 s, steps: 30}"), _run),
    "equations": Kind(_text(REACTION), _run),
    "restart": Kind(_ended, _restart),
    "sweep": Kind(_plate, _sweep, kept=lambda name: name != "table.csv"),  # which has rates
    "report": Kind(_ended, _report),
    "export": Kind(_ended, _export),
    "two ranks": Kind(_plate, _run, ranks=2),
}


def forked(words: Sequence[object], log: Path, arm: Callable[[], None] | None = None) -> int:
    """Run the program in a copy of this process; its exit code, negative for a signal.

    Args:
        words: its arguments.
        log: the file that takes what it says.
        arm: called by the copy before it begins.
    """
    child = os.fork()
    if child == 0:
        code = 99
        try:
            os.setsid()
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            streams = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            sys.stdout, sys.stderr = streams
            if arm is not None:
                arm()
            with contextlib.suppress(SystemExit):
                code = tetris_main([str(word) for word in words])
            for stream in streams:
                stream.flush()
        except BaseException:  # noqa: BLE001  the copy must not go on as the campaign
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    return _waited(child)


def _waited(child: int) -> int:
    deadline = time.monotonic() + _LONG
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -signal.SIGALRM
        time.sleep(0.001)


def launched(words: Sequence[object], log: Path, ranks: int) -> int:
    """Run the program on ranks; the launcher's exit code."""
    launcher = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert launcher is not None, "there is no mpiexec"
    command = [launcher, "-n", str(ranks), sys.executable, "-m", "tetris_sim", *map(str, words)]
    with log.open("w") as said:
        try:
            return subprocess.run(
                command, stdout=said, stderr=said, timeout=_LONG, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return -signal.SIGALRM


@dataclass
class Tries:
    """What came of the operations of one kind of runs.

    Attributes:
        kind: key of `KINDS`.
        operations: file operations of an undisturbed run.
        tries: operations that were let fail.
        right: runs that ended with exit code 0 and the right files.
        told: runs that ended with a sentence, and went on to the right files.
        killed: runs that were killed, and went on to the right files.
        failures: what went wrong.
    """

    kind: str
    operations: int = 0
    tries: int = 0
    right: int = 0
    told: int = 0
    killed: int = 0
    failures: list[str] = field(default_factory=list)


class Attack:
    """Attacks on one kind of runs, in a folder of its own."""

    def __init__(self, kind: str, folder: Path, control: Control) -> None:
        self._kind, self._folder, self._control = KINDS[kind], folder, control
        self.tally = Tries(kind)
        # Every run has the same place, since results name it.
        self._place, self._begin = folder / "run", folder / "begin"
        folder.mkdir(parents=True)
        self._disarm()
        config = self._kind.prepare(self._place)
        shutil.copytree(self._place, self._begin, symlinks=True)
        code = self._run(self._kind.words(config), at=-1)
        assert code == 0, (folder / "log").read_text()
        self.tally.operations = self._control.count
        self._expected = self._files()
        self._config = config

    def attack(self, at: int, fault: str) -> None:
        """Let one operation fail, and look at what the run and the next one leave."""
        trouble = self._attacked(at, fault)
        self.tally.tries += 1
        if trouble:
            name = self._control.named.decode(errors="replace")
            self.tally.failures.append(f"{self.tally.kind} {at} {fault} ({name}): {trouble}")

    def _attacked(self, at: int, fault: str) -> str:
        shutil.rmtree(self._place)
        shutil.copytree(self._begin, self._place, symlinks=True)
        how, error, once = FAULTS[fault]
        code = self._run(self._kind.words(self._config), at=at, how=how, error=error, once=once)
        said = (self._folder / "log").read_text(errors="replace")
        if "Traceback" in said or "this is a bug" in said:
            return f"a traceback: {said[-1500:]}"

        if code == 0:
            self.tally.right += 1
            return self._difference()
        if code == -signal.SIGALRM:
            return f"it hangs: {said[-500:]}"
        if code in _CODES and "tetris-sim" in said:
            self.tally.told += 1
        elif how in (BEFORE, AFTER):
            self.tally.killed += 1
        else:
            return f"exit code {code}: {said[-500:]}"
        self._disarm()
        words = (self._kind.again or self._kind.words)(self._config)
        again = self._run(words, at=-1)
        if again != 0:
            return f"then exit code {again}: {(self._folder / 'log').read_text()[-500:]}"
        return self._difference()

    def _run(
        self, words: Sequence[object], *, at: int, how: int = 0, error: int = 0, once: bool = True
    ) -> int:
        control = self._control
        control.count, control.at, control.hits = 0, at, 0
        control.how, control.error, control.once = how, error, once
        control.named = b""

        def arm() -> None:
            control.folder = os.fsencode(self._place)

        try:
            if self._kind.ranks:
                arm()
                return launched(words, self._folder / "log", self._kind.ranks)
            return forked(words, self._folder / "log", arm)
        finally:
            self._disarm()

    def _disarm(self) -> None:
        self._control.folder = b""

    def _files(self) -> dict[str, bytes]:
        found = contents(self._place)
        return {
            name: b"" if name.endswith((".html", ".vtkhdf")) else content
            for name, content in found.items()
            # An export that was killed leaves its unfinished file in a folder of the user.
            if self._kind.kept(Path(name.partition(":")[0]).name)
            and not (name.endswith(".part") and "/" not in name)
        }

    def _difference(self) -> str:
        """How the files differ from those of an undisturbed run; empty if they do not.

        Of checkpoints the last one is compared: the run may have gone on without one before it,
        which it says, and keeps older ones as long as a newer one cannot be read.
        """
        found, wanted = self._files(), self._expected
        names = [name.partition(":")[0] for name in wanted if "checkpoint_" in name]
        last = max(names, key=lambda name: name.rpartition("/")[2], default="")
        found, wanted = (
            {
                name: it
                for name, it in files.items()
                if "checkpoint_" not in name or last.rpartition("/")[2] in name
            }
            for files in (found, wanted)
        )
        missing, more = wanted.keys() - found.keys(), found.keys() - wanted.keys()
        other = [name for name in wanted.keys() & found.keys() if wanted[name] != found[name]]
        if missing or more or other:
            return f"missing {sorted(missing)}, too many {sorted(more)}, different {sorted(other)}"
        return ""


def warm(folder: Path, kinds: Sequence[str]) -> None:
    """Load and compile what the kinds need, in this process, which every run is a copy of."""
    for name, kind in ((it, KINDS[it]) for it in ("explicit", *kinds)):
        if kind.ranks or (folder / name).exists():
            continue
        config = kind.prepare(folder / name)
        with contextlib.redirect_stdout(sys.stderr):
            assert tetris_main([str(word) for word in kind.words(config)]) == 0


def main(words: list[str] | None = None) -> int:
    """The command line."""
    parser = arguments(__doc__ or "", "tries", KINDS)
    parser.add_argument("--all", action="store_true", help="every operation by every fault")
    parser.add_argument("--fault", action="append", choices=list(FAULTS))
    args = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="tetris_sim_failing_") as temporary:
        folder = Path(temporary)
        if "FAILING_FILES" not in os.environ:
            environment = build_shim(folder)
            environment["TETRIS_SIM_CACHE_DIR"] = os.environ.get(
                "TETRIS_SIM_CACHE_DIR", str(folder / "cache")
            )
            command = [sys.executable, __file__, *(words or sys.argv[1:])]
            return subprocess.run(command, env=os.environ | environment, check=False).returncode

        start, control = time.monotonic(), open_control()
        kinds, faults = args.kind or list(KINDS), args.fault or list(FAULTS)
        warm(folder / "warm", kinds)
        tallies = []
        for kind in kinds:
            attack = Attack(kind, folder / kind.replace(" ", "_"), control)
            tallies.append(attack.tally)
            whole = [(at, fault) for at in range(attack.tally.operations) for fault in faults]
            if not args.all:
                count = min(len(whole), max(1, args.tries // len(kinds)))
                whole = random.Random(f"{args.seed} {kind}").sample(whole, count)
            for at, fault in whole:
                if time.monotonic() > start + args.seconds:
                    break
                attack.attack(at, fault)
            tell(args, "tries", tallies, start, ended=False)
    return tell(args, "tries", tallies, start)


if __name__ == "__main__":
    sys.exit(main())
