"""What may be imported, and which words may be used, where: the rules import-linter has no contract
for.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("tetris_sim", "cpu_kernels", "gpu_kernels", "scheduler", "apps")
SOURCES = sorted(path.relative_to(ROOT) for top in PACKAGES for path in (ROOT / top).rglob("*.py"))

# Libraries that only some machines have: where their name may occur in an import.
CONFINED = {
    "cupy": re.compile(r"gpu_kernels/.*|scheduler/(machine/machine|run/worker)\.py"),
    "cupyx": re.compile(r"gpu_kernels/.*|scheduler/(machine/machine|run/worker)\.py"),
    "mpi4py": re.compile(r"scheduler/comm/communicator\.py"),
}
HEAVY = (
    "cupy",
    "h5py",
    "matplotlib",
    "mpi4py",
    "numba",
    "pint",
    "pydantic",
    "ruamel",
    "scipy",
    "tqdm",
    "xarray",
)
FORBIDDEN_WORDS = {
    "scheduler": r"temperature|heat|thermal|degC",
    "apps": r"\b(cuda|cupy|gpus?|mpi)\b",
}


def imports(path: Path) -> list[tuple[str, bool]]:
    """(top-level module, whether a function does it) of every import in a file."""
    tree = ast.parse((ROOT / path).read_text())
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name.split(".")[0], id(node) in inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, (
                f"{path}:{node.lineno} imports relatively; write from tetris_sim..."
            )
            found.append(((node.module or "").split(".")[0], id(node) in inside))
    return found


def loaded(statement: str) -> set[str]:
    """Top-level modules in a fresh interpreter after a statement."""
    code = (
        f"{statement}\nimport sys; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_optional_libraries_are_imported_in_few_places_and_inside_functions(path: Path) -> None:
    for module, in_function in imports(path):
        assert module not in PACKAGES[1:], (
            f"{path} imports {module}; its name is tetris_sim.{module}"
        )
        if module in CONFINED:
            assert CONFINED[module].fullmatch(path.as_posix()), f"{path} must not import {module}"
            assert in_function, f"{path} imports {module} when it is imported itself"


@pytest.mark.parametrize("folder", FORBIDDEN_WORDS)
def test_physics_and_machines_do_not_speak_of_each_other(folder: str) -> None:
    pattern = re.compile(FORBIDDEN_WORDS[folder], re.IGNORECASE)
    paths = [path for path in SOURCES if path.parts[0] == folder]
    assert paths
    for path in paths:
        for number, line in enumerate((ROOT / path).read_text().splitlines(), start=1):
            assert not pattern.search(line), f"{path}:{number} {line.strip()}"


def test_importing_the_package_costs_numpy_and_nothing_else() -> None:
    modules = loaded("import tetris_sim")
    assert "tetris_sim" in modules
    assert not modules & set(HEAVY)


def said_by(*words: str) -> str:
    """A statement that runs the command line, with its output hushed."""
    return (
        f"import sys, io, contextlib; sys.argv = ['tetris-sim', *{words!r}]\n"
        "import tetris_sim.__main__ as m\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()): m.main()"
    )


@pytest.mark.parametrize("statement", ["import tetris_sim", said_by("--help")])
def test_what_starts_at_once_does_not_even_cost_numpy(statement: str) -> None:
    assert not loaded(statement) & {*HEAVY, "numpy"}


SMALL = """
grid: {shape: [16, 16], size: [15 mm, 15 mm]}
model: {type: heat, material: copper}
initial: {type: gaussian, amplitude: 100 K, sigma: 2.15 mm}
boundaries: {"*": {type: robin, h: 25 W/(m^2 K), ambient: 300 K}}
time: {dt: auto, t_end: 1 ms}
output: {probes: [{at: [7 mm, 1 cm], every: 0.1 ms}], pictures: false}
checkpoint: {every: 30 min wall}
"""


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        (("validate",), {"numba", "h5py", "matplotlib", "pint", "scipy", "tqdm"}),
        (("run", "-q", "--overwrite"), {"matplotlib", "pint", "tqdm", "xarray", "pandas"}),
    ],
)
def test_a_verb_imports_what_it_needs_and_no_more(
    tmp_path: Path, words: tuple[str, ...], unwanted: set[str]
) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL.replace("output: {", f"output: {{directory: {tmp_path / 'out'}, "))
    modules = loaded(said_by(words[0], str(path), *words[1:]))
    assert "pydantic" in modules
    assert not modules & unwanted


def test_a_run_of_kept_kernels_imports_nothing_that_compiles(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL.replace("output: {", f"output: {{directory: {tmp_path / 'out'}, "))
    run = said_by("run", str(path), "-q", "--overwrite", "--set", "compute.method=cpu.plain")
    loaded(run)  # compiles
    compilers = ("scipy.linalg", "numba.np.arraymath", "numba.typed.typedlist", "cffi")
    assert loaded(f"{run}\nassert not {{*sys.modules}} & {{*{compilers}}}, {{*sys.modules}}")


def test_validate_imports_no_kernels(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(SMALL)
    statement = (
        f"{said_by('validate', str(path))}\nassert 'tetris_sim.gpu_kernels' not in sys.modules"
    )
    assert "tetris_sim" in loaded(statement)


def test_asking_for_the_version_imports_nothing_heavy() -> None:
    statement = (
        "import sys; sys.argv = ['tetris-sim', '--version']; import tetris_sim.__main__ as m, "
        "contextlib\n"
    )
    statement += "with contextlib.suppress(SystemExit): m.main()"
    code_and_modules = loaded(statement)
    assert not code_and_modules & set(HEAVY)


def test_every_public_name_can_be_imported_and_is_documented() -> None:
    import tetris_sim

    assert set(tetris_sim.__all__) <= set(dir(tetris_sim))
    for name in tetris_sim.__all__:
        value = getattr(tetris_sim, name)
        assert name == "__version__" or value.__doc__, name
