"""README and the user guide do what they say: commands and Python blocks are run in order, each
document in a folder. Those of the README are typed into a shell, as a newcomer does; of the guide the
program runs as a copy of a process that has loaded it, unless a shell has more to do.

In a ```console block a line that begins with `$ ` is a command, and the lines below it must occur
in its output in that order (`...` stands for anything). `<!-- not run: reason -->` before a block
exempts it, and with `<!-- fails with exit code 2 -->` its last command must end so. ```python
blocks of a document share their names. ```yaml blocks must be YAML, and those with a grid and a
model whole configurations. The folder has the examples/.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tetris_sim.__main__ import main
from tetris_sim.config import read_config
from tetris_sim.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]
BLOCK = re.compile(
    r"^(?:<!-- (?P<note>[^>]*) -->\n\s*)?^```(?P<language>console|python|yaml)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
COPIES = multiprocessing.get_context("forkserver")
COPIES.set_forkserver_preload(["tetris_sim.__main__", "tetris_sim.simulation.launch"])
SHELL = set("|&;<>$`*?~\\\n")  # what is not for the program


@dataclass(frozen=True)
class Block:
    """A piece of a document that can be run."""

    line: int
    language: str
    body: str
    note: str

    @property
    def runs(self) -> bool:
        return not self.note.startswith("not run: ")

    @property
    def exit_code(self) -> int:
        found = re.fullmatch(r"fails with exit code (\d+)", self.note)
        return int(found[1]) if found else 0


def blocks(text: str) -> list[Block]:
    return [
        Block(
            text.count("\n", 0, found.start("body")),
            found["language"],
            found["body"],
            found["note"] or "",
        )
        for found in BLOCK.finditer(text)
    ]


def commands(body: str) -> list[tuple[str, list[str]]]:
    """(command, the output lines shown below it) of a console block."""
    found: list[tuple[str, list[str]]] = []
    for line in body.splitlines():
        if found and not found[-1][1] and found[-1][0].endswith("\\"):
            found[-1] = (f"{found[-1][0]}\n{line}", [])
        elif line.startswith("$ "):
            found.append((line[2:], []))
        elif line.strip():
            found[-1][1].append(line)
    return found


def in_a_shell(command: str, folder: Path) -> tuple[int, str]:
    """The exit code, and what was said."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "120",
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def in_a_copy(command: str, folder: Path) -> tuple[int, str]:
    """The same of a copy of a process that has loaded the program and done nothing else: one that
    has computed cannot be copied where OpenMP has made threads.
    """
    with tempfile.NamedTemporaryFile("r") as log:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
        words = shlex.split(command)[1:]
        copy = COPIES.Process(target=run_program, args=(words, log.name, folder, environment))
        copy.start()
        copy.join()
        assert copy.exitcode is not None
        return copy.exitcode, log.read()


def run_program(words: list[str], log: str, folder: Path, environment: dict[str, str]) -> None:
    """Be a process that runs the program, with what it says in a file."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    out = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(out, stream)
    sys.argv = ["tetris-sim", *words]
    sys.exit(main(words))


def run_console(block: Block, folder: Path, *, as_typed: bool) -> None:
    listed = commands(block.body)
    for number, (command, shown) in enumerate(listed, start=1):
        copied = not as_typed and command.startswith("tetris-sim ") and not SHELL & set(command)
        code, said = (in_a_copy if copied else in_a_shell)(command, folder)
        expected = block.exit_code if number == len(listed) else 0
        assert code == expected, f"$ {command}\n{said}\nexited {code}, not {expected}"
        pattern = ".*".join(
            re.escape(line.strip()).replace(re.escape("..."), "[^\n]*") for line in shown
        )
        assert re.search(pattern, said, re.DOTALL), f"$ {command}\n{said}\ndoes not show\n{shown}"


def check_yaml(text: str, folder: Path) -> None:
    content = YAML(typ="safe").load(text)
    if isinstance(content, dict) and {"grid", "model"} <= set(content):
        problem = read_config(text, name="example.yaml", base=folder, environ={}).build()
        assert problem.steps > 0


def run_document(text: str, name: str, folder: Path, *, as_typed: bool = True) -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(text):
        if block.runs and block.language == "console":
            run_console(block, folder, as_typed=as_typed)
        elif block.runs and block.language == "yaml":
            check_yaml(block.body, folder)
        elif block.runs:
            code = "\n" * block.line + block.body
            exec(compile(code, name, "exec"), names)


@pytest.mark.slow
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_the_commands_of_a_document_work(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    as_typed = document.stem == "README"
    run_document(document.read_text(), str(document), tmp_path, as_typed=as_typed)


def test_the_readme_and_the_guide_show_commands_and_python_that_are_run() -> None:
    runnable = {
        document.name: {block.language for block in blocks(document.read_text()) if block.runs}
        for document in DOCUMENTS
    }
    assert runnable["README.md"] >= {"console", "python"}
    assert sum(bool(languages) for languages in runnable.values()) > len(runnable) / 2, runnable


def test_every_remark_on_a_block_is_understood_and_says_why() -> None:
    for document in DOCUMENTS:
        for block in blocks(document.read_text()):
            known = block.exit_code or len(block.note.removeprefix("not run: ")) > 10
            assert not block.note or known, f"{document}:{block.line} {block.note}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```console\n$ false\n```\n", "exited 1, not 0"),
        ("<!-- fails with exit code 2 -->\n```console\n$ true\n```\n", "exited 0, not 2"),
        ("```console\n$ echo one; echo two\ntwo\none\n```\n", "does not show"),
        ("```python\nassert 1 == 2, 'not one'\n```\n", "not one"),
        ("```python\nx = 1\n```\n\n```python\nassert x == 2, 'not two'\n```\n", "not two"),
    ],
)
def test_what_does_not_work_is_noticed(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=problem):
        run_document(text, "example.md", tmp_path)


def test_configurations_are_checked(tmp_path: Path) -> None:
    part = "grid: {shape: [4, 5]}\n"
    rest = (
        "initial: {type: constant, value: 0}\nboundaries: "
        "{x: {type: periodic}, y: {type: periodic}}\n"
    )
    whole = part + "model: {type: heat, material: copper}\ntime: {dt: auto, steps: 3}\n" + rest
    run_document(f"```yaml\n{part}```\n```yaml\n{whole}```\n", "example.md", tmp_path)
    with pytest.raises(ConfigError, match="coper"):
        run_document(f"```yaml\n{whole.replace('copper', 'coper')}```\n", "example.md", tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "<!-- not run: it would take a day -->\n```console\n$ false\n```\n",
        "<!-- fails with exit code 3 -->\n\n```console\n$ true\n$ exit 3\n```\n",
        (
            "```console\n$ echo 10 steps in 3.2 s; echo and more; echo done\n... steps in ... "
            "s\ndone\n```\n"
        ),
        "```console\n$ echo one \\\n  two\none two\n```\n",
        "```yaml\n$ false\n```\n",
        "```python\nx = 1\n```\n```python\nassert x == 1\n```\n",
        "```console\n$ test -z ''\n$ test ! -t 0\n```\n",
    ],
)
def test_what_works_passes(text: str, tmp_path: Path) -> None:
    run_document(text, "example.md", tmp_path)
