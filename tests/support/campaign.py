"""Kill runs at random moments, again and again, and compare what they end with.

`python tests/support/campaign.py 1000 --jobs 16 --json docs/trust/kills.json` does it a thousand
times. A chain is one run that is killed and continued until it ends; then its results must be,
bit by bit, those of a run that nobody touched, and nothing unfinished may be left. Whatever a
killed run's successor says, it never shows a traceback.

A run is a fork of a process that has loaded the program, so that a kill costs a fraction of a
second; ranks are started by mpiexec, as a user would.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # beside the tests it is imported with what pytest puts on the path
    sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from tests.support.fault_runs import assert_same_results, checkpoint_steps, write_plate
from tests.support.jobs import arguments, in_jobs, tell
from tetris_sim.__main__ import main as tetris_main

# name -> steps, steps between records, between checkpoints, between fields
KINDS = {
    "one process": (12_000, 500, 1_000, 3_000),
    "writers": (3_000, 100, 100, 100),  # killed while a file is being written
    "renamed": (12_000, 500, 1_000, 3_000),  # folders, between two runs and under a running one
    "full disk": (12_000, 500, 1_000, 3_000),
    "ranks": (6_000, 250, 500, 1_500),  # one of two or four, or all
    "writers of ranks": (3_000, 100, 100, 100),  # killed while one of them writes its part
}
SHARES = {
    "one process": 0.5,
    "writers": 0.2,
    "renamed": 0.12,
    "full disk": 0.1,
    "ranks": 0.05,
    "writers of ranks": 0.03,
}
# Each start of a chain has another number of ranks, where there is a core for each.
SIZES = (2, 4) if len(os.sched_getaffinity(0)) >= 4 else (2,)
DISK = 8 << 20  # bytes
# No checkpoint is begun without a MiB to spare (checkpoint/directory.py).
ROOM = 3 << 19
_LONG = 300.0  # seconds until a run that neither ends nor dies is a failure


@dataclass
class Tally:
    """What happened to one kind of runs.

    Attributes:
        kind: key of `KINDS`.
        kills: runs that were killed.
        chains: runs that ended, after any number of kills, and were compared.
        in_fields: kills that left a file of fields unfinished.
        resumed: starts that went on from a checkpoint.
        refused: runs that ended by themselves with a sentence, for want of room or of their folder.
        failures: what went wrong.
    """

    kind: str
    kills: int = 0
    chains: int = 0
    in_fields: int = 0
    resumed: int = 0
    refused: int = 0
    failures: list[str] = field(default_factory=list)


# ---- one run


def _forked(arguments: list[str], log: Path) -> int:
    """Start the program as a copy of this process; its id."""
    child = os.fork()
    if child:
        return child
    code = 99
    try:
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        with open(1, "w", closefd=False) as sys.stdout, open(2, "w", closefd=False) as sys.stderr:
            code = tetris_main(arguments)
    except BaseException:  # noqa: BLE001  the copy must not go on as the campaign
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _on_ranks(ranks: int, arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    launcher = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert launcher is not None, "there is no mpiexec"
    with log.open("w") as said:
        return subprocess.Popen(
            [launcher, "-n", str(ranks), sys.executable, "-m", "tetris_sim", *arguments],
            stdout=said,
            stderr=said,
        )


def _ranks_of(config: Path) -> list[int]:
    """Processes that run the configuration, found by their words."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[1:3] == [b"-m", b"tetris_sim"] and str(config).encode() in words:
                found.append(int(entry.name))
    return found


class Run:
    """A run that has been started and can be killed; of so many ranks by mpiexec, 0 for none."""

    def __init__(self, config: Path, log: Path, *, ranks: int) -> None:
        arguments = ["run", str(config), "--resume", "auto"]
        self.config = config
        self._launched = _on_ranks(ranks, arguments, log) if ranks else None
        self._child = 0 if ranks else _forked(arguments, log)
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, once it has ended; negative: a signal."""
        if self._code is not None:
            return self._code
        if self._launched is not None:
            self._code = self._launched.poll()
        else:
            child, status = os.waitpid(self._child, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if child else None
        return self._code

    def wait(self, seconds: float) -> int | None:
        """The same, once it has ended or this time is over."""
        end = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        return self._code

    def kill(self, rng: random.Random) -> None:
        """SIGKILL to it; of ranks to one or to all."""
        victims = [self._child]
        if self._launched is not None:
            victims = _ranks_of(self.config) or [self._launched.pid]
            victims = victims if rng.random() < 0.4 else [rng.choice(victims)]
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)


# ---- a chain


class Chains:
    """Runs of one kind in one folder, killed until there were enough kills."""

    def __init__(self, kind: str, folder: Path, rng: random.Random) -> None:
        self.tally = Tally(kind)
        self._rng, self._folder, self._log = rng, folder, folder / "log"
        self._ranks, self._lost = kind in ("ranks", "writers of ranks"), False
        steps, often, checkpoint, fields = KINDS[kind]
        self._form: dict[str, Any] = {
            "steps": steps,
            "often": often,
            "checkpoint": checkpoint,
            "fields": fields,
        }
        folder.mkdir(parents=True, exist_ok=True)

        start = time.monotonic()
        config = write_plate(folder / "whole", **self._form)
        code = Run(config, self._log, ranks=self._size()).wait(_LONG)
        assert code == 0, self._log.read_text()
        self._whole, self._seconds = folder / "whole" / "out", time.monotonic() - start

    def kill(self, n: int) -> None:
        """Chain after chain until `n` runs were killed."""
        while self.tally.kills < n or not self.tally.chains:
            self._chain(n)

    def _chain(self, n: int) -> None:
        folder = self._folder / "killed"
        config = write_plate(folder, **self._form)
        results, deadline = folder / "out", time.monotonic() + _LONG
        code: int | None = None
        self._lost = False
        while code != 0:
            assert time.monotonic() < deadline, f"no end in sight: {self._log.read_text()}"
            code = self._start(config, results, spared=self.tally.kills >= n)
            if self._lost and code == 2:  # a record that the index names is where the folder was
                shutil.rmtree(folder)
                return

        self.tally.chains += 1
        steps, checkpoint = self._form["steps"], self._form["checkpoint"]
        if self._lost:  # nobody removed the checkpoints that were there when the folder went
            for step in checkpoint_steps(results)[:-2]:
                (results / "checkpoints" / f"checkpoint_{step:012d}.h5").unlink()
        assert_same_results(results, self._whole)
        assert not list(results.rglob("*.part")), "unfinished files are left"
        assert checkpoint_steps(results) == [steps - checkpoint, steps]
        shutil.rmtree(folder)

    def _size(self) -> int:
        return self._rng.choice(SIZES) if self._ranks else 0

    def _start(self, config: Path, results: Path, *, spared: bool) -> int | None:
        """One run, killed or not; its exit code, if it ended where its folder is."""
        with self._trouble(results) if not spared else contextlib.nullcontext() as trouble:
            run = Run(config, self._log, ranks=self._size())
            code = run.wait(_LONG if spared else self._rng.uniform(0, 0.8 * self._seconds))
            if trouble is not None:
                trouble()
                code = run.wait(self._rng.uniform(0, 0.1))
            if code is None:
                self._watch(run, results)
                run.kill(self._rng)
                code = run.wait(_LONG)
                self.tally.kills += code != 0
                self.tally.in_fields += any((results / "fields").glob("*.part"))
            elif code != 0:
                self.tally.refused += 1
        said = self._log.read_text()
        self.tally.resumed += "Continuing from" in said
        assert "Traceback" not in said, said
        # Of ranks mpiexec says how they ended, in its own numbers; an exit code of 3 says that
        # something could not be written.
        allowed = (0, 3, -signal.SIGKILL, *((2,) if self._lost else ()))
        assert self._ranks or code in allowed, f"exit code {code}: {said}"
        return None if trouble is not None and code != 2 else code

    def _watch(self, run: Run, results: Path) -> None:
        """Of writers: wait until a file is being written."""
        if not self.tally.kind.startswith("writers"):
            return
        # Ranks take long to start; one time in two it is a file of fields that is waited for.
        patience, where = (15.0, results / "fields") if self._ranks else (0.2, results)
        where = where if self._rng.random() < 0.5 else results
        end = time.monotonic() + patience
        while run.poll() is None and time.monotonic() < end:
            if any(where.rglob("*.part")):
                return

    @contextlib.contextmanager
    def _trouble(self, results: Path) -> Iterator[Any]:
        """What besides kills a run of this kind suffers; inside, what to do to it on the way."""
        kind, folder = self.tally.kind, results.parent
        if kind == "full disk":
            ballast, room = folder / "ballast", self._rng.randrange(0, ROOM)
            if self._rng.random() < 0.5:
                _fill(ballast, room)
                yield None
            else:
                yield lambda: _fill(ballast, room)
            ballast.unlink(missing_ok=True)
        elif kind == "renamed" and results.exists() and self._rng.random() < 0.5:
            away = folder / "away"
            self._lost = True
            yield lambda: results.rename(away)
            # What a run made anew where its folder was is not what it goes on from.
            shutil.rmtree(results, ignore_errors=True)
            away.rename(results)
        elif kind == "renamed" and results.exists():
            results.rename(folder / "moved")
            (folder / "moved").rename(results)
            yield None
        else:
            yield None


def _fill(ballast: Path, room: int) -> None:
    """Leave `room` bytes on the disk."""
    with ballast.open("wb") as file, contextlib.suppress(OSError):
        free = shutil.disk_usage(ballast.parent).free - room
        os.posix_fallocate(file.fileno(), 0, max(free, 1))


# ---- the campaign


def attack(kind: str, kills: int, seed: int, folder: Path) -> Tally:
    """Kill so many runs of a kind; what happened, failures included."""
    if kind == "full disk" and not os.environ.get("_CAMPAIGN_DISK"):
        return _on_small_disk(kills, seed, folder)
    tally = Tally(kind)
    try:
        chains = Chains(kind, folder, random.Random(f"{seed} {kind}"))
        tally = chains.tally
        chains.kill(kills)
    except (AssertionError, OSError) as failure:
        tally.failures.append(f"{kind}, seed {seed}: {failure}"[:2000])
    return tally


def small_disks() -> bool:
    """Whether this system lets a user mount a small disk."""
    test = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/tmp"]
    with contextlib.suppress(OSError):
        return subprocess.run(test, capture_output=True, check=False).returncode == 0
    return False


def _on_small_disk(kills: int, seed: int, folder: Path) -> Tally:
    """The same in a process whose folder is a small disk of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = f'mount -t tmpfs -o size={DISK} none "{folder}" && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", mount, "sh"]
    words = [sys.executable, __file__, str(kills), "--seed", str(seed), "--kind", "full disk"]
    done = subprocess.run(
        [*command, *words, "--folder", str(folder)],
        env=os.environ | {"_CAMPAIGN_DISK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        return Tally("full disk", failures=[f"no small disk: {done.stderr[-2000:]}"])
    return Tally(**json.loads(done.stdout)["kinds"][0])


def _attack(task: tuple[str, int, int, Path]) -> Tally:
    return attack(*task)


def warm(folder: Path) -> None:
    """Load and compile what a run needs, in this process and in the cache folder."""
    config = write_plate(folder / "warm", steps=100, often=50, checkpoint=50)
    assert tetris_main(["run", str(config), "--overwrite", "-q"]) == 0


def tasks_of(
    kills: int, seed: int, jobs: int, folder: Path, kinds: list[str]
) -> list[tuple[str, int, int, Path]]:
    """(kind, kills, seed, folder), some for each job."""
    whole = sum(SHARES[kind] for kind in kinds)
    tasks: list[tuple[str, int, int, Path]] = []
    for kind in kinds:
        left = round(kills * SHARES[kind] / whole)
        portion = max(1, -(-left // (2 * jobs))) if jobs > 1 else max(1, left)
        names = (folder / f"{kind.replace(' ', '_')}_{number}" for number in itertools.count())
        starts = range(0, left, portion)
        tasks += [(kind, min(portion, left - start), seed + start, next(names)) for start in starts]
    return tasks


def summed(tallies: list[Tally]) -> list[Tally]:
    """One of each kind."""
    found: dict[str, Tally] = {}
    for it in tallies:
        total = found.setdefault(it.kind, Tally(it.kind))
        for name in ("kills", "chains", "in_fields", "resumed", "refused", "failures"):
            setattr(total, name, getattr(total, name) + getattr(it, name))
    return list(found.values())


def main(words: list[str] | None = None) -> int:
    """The command line."""
    parser = arguments(__doc__ or "", "kills", KINDS)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args(words)

    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tetris_sim_kills_") as temporary:
        folder = args.folder or Path(temporary)
        os.environ.setdefault("TETRIS_SIM_CACHE_DIR", f"{temporary}/cache")
        with contextlib.redirect_stdout(sys.stderr):
            warm(folder)
        tasks = tasks_of(args.kills, args.seed, args.jobs, folder, args.kind or list(KINDS))
        # Longest first: ranks and disks are slow to start.
        tasks.sort(key=lambda task: list(KINDS).index(task[0]), reverse=True)

        def told(found: list[Tally]) -> None:
            tell(args, "kills", summed(found), start, ended=False)

        tallies = in_jobs(_attack, tasks, args, told)
    return tell(args, "kills", summed(tallies), start)


if __name__ == "__main__":
    sys.exit(main())
