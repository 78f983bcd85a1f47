"""What newcomers stumbled over: each mistake is told at once, by its name, with what to do."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from benchmarks.samples import LIMITS, kernel, row
from tests.support.config_cases import GOOD, changed, mistakes, read
from tetris_sim.__main__ import main
from tetris_sim.apps.initial_file import open_file
from tetris_sim.bench import candidates as cpu
from tetris_sim.bench.result import BenchCase, MachineLimits
from tetris_sim.commands import bench
from tetris_sim.config import load_config
from tetris_sim.config.sections.conditions import FileInitial
from tetris_sim.errors import ConfigError, ConfigMistakesError, ExitCode, NumericsError
from tetris_sim.model.formula import FUNCTIONS, ExpressionError, compile_expression
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Box
from tetris_sim.outputs.figure_layout import Caption
from tetris_sim.outputs.pictures import draw_state
from tetris_sim.outputs.results import refuse_full_disk
from tetris_sim.outputs.sampling import default_cuts, sample
from tetris_sim.outputs.series import Values
from tetris_sim.support.wording import format_duration, gib

SMALL = """\
grid: {shape: [20, 10], size: [10 mm, 10 mm]}
model: {type: heat, diffusivity: 1e-4}
initial: {type: constant, value: 20}
boundaries: {"*": {type: dirichlet, value: 20}}
time: {steps: 5}
compute: {devices: cpu, method: cpu.plain, threads: 1, tuning_budget: 0}
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.yaml"
    path.write_text(SMALL, encoding="utf-8")
    return path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    try:
        code = main(words)
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capsys.readouterr()
    return code, out + err


# ---- all in one round


def test_mistakes_of_one_section_and_an_unstable_step_are_told_together(small: Path) -> None:
    text = SMALL.replace("{steps: 5}", "{steps: 5, dt: 1}")
    text += "output:\n  evry: 3\n  probes: [{name: p, at: [20, 0], every: 1 step}]\n"
    small.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigMistakesError) as caught:
        load_config(small, environ={})

    told = [(problem.key, problem.place.line) for problem in caught.value.problems]
    assert told == [("time.dt", 5), ("output.evry", 8), ("output.probes.0.at.0", 9)]
    assert "time.dt: 1 s is unstable" in str(caught.value)


def test_a_misspelt_key_counts_as_what_was_meant() -> None:
    text = changed("model", "model: {type: heat, diffusivity: 1e-4, conductivty: 3}").replace(
        '"*": {type: neumann}', '"*": {type: robin, h: 5, ambient: 20}'
    )
    (only,) = mistakes(text)
    assert "did you mean 'conductivity'" in only


def test_a_mistake_below_a_misspelt_key_is_placed_by_the_key_as_written(small: Path) -> None:
    text = SMALL + "output:\n  probs: [{name: p, at: [20 mm, 0], every: 1 step}]\n"
    small.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigMistakesError) as caught:
        load_config(small, environ={})

    told = [(problem.key, problem.place.line) for problem in caught.value.problems]
    assert told == [("output.probs", 8), ("output.probs.0.at.0", 8)]


def test_a_wrong_output_does_not_hide_another() -> None:
    text = GOOD + "output: {fields: {every: never}, probes: [{name: p, at: [1, 0], every: 1 s}]}\n"
    told = mistakes(text)
    assert len(told) == 2
    assert "outside the box" in told[1]


# ---- the command line


def test_set_of_an_unknown_key_names_the_option(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(capsys, "validate", str(small), "--set", "foo.bar=2")
    assert code == ExitCode.CONFIG
    assert "tetris-sim: --set foo.bar=2: foo: unknown key" in text


def test_a_section_of_the_file_stays_the_place_of_its_own_mistakes() -> None:
    told = mistakes(changed("time", "time: 3"), "time.t_end=2")
    assert [it.split(": ")[0] for it in told] == ["c.yaml:7:7", "--set time.t_end=2"]
    told = mistakes(GOOD + "foo: {bar: 1}\n", "foo.baz=2")
    assert told[0].startswith("c.yaml:8:1: foo: unknown key")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("rnu", "small.yaml"), "there is no verb rnu (did you mean 'run'?)"),
        (("run", "small.yaml", "--resume", "latest"), "--resume latest: there is no such"),
        (("verify", "--case", "nothing"), "they are called wave, mode"),
        (("verify", "--case", "maximum principel"), "did you mean 'maximum principle'"),
    ],
)
def test_what_does_not_exist_is_told_with_what_does(
    words: tuple[str, ...], wanted: str, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(capsys, *words)
    assert code != ExitCode.OK
    assert wanted in text


def test_bench_alone_measures_the_cpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def measure(args: object) -> None:
        asked.append(args.what)  # type: ignore[attr-defined]

    monkeypatch.setattr(bench, "measure", measure)
    assert said(capsys, "bench") == (ExitCode.OK, "")
    assert asked == ["cpu"]


def test_a_bench_says_what_it_measures_before_it_has_measured_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure_limits(*args: object, **options: object) -> MachineLimits:
        return LIMITS["before"]

    monkeypatch.setattr(cpu, "measure_limits", measure_limits)
    before: list[str] = []

    def bench_kernel(*args: object, **options: object) -> BenchCase:
        before.append(capsys.readouterr().err)
        return kernel([row("prange, slices", 1e9)])

    monkeypatch.setattr(cpu, "bench_kernel", bench_kernel)
    assert main(["bench", "--stencils", "heat-1d,heat-2d"]) == ExitCode.OK

    first, second = before
    assert "what memory and arithmetic of this machine do at most" in first
    assert first.rstrip().endswith("Measuring heat-1d, float64 (1 of 2) ...")
    assert re.search(r"Measuring heat-2d, float64 \(2 of 2, about .* left\) \.\.\.", second)


@pytest.mark.parametrize("text", ["gpu:0+cpu", "gpu:0,cpu", "gpu:0 + cpu"])
def test_devices_may_be_joined_by_a_plus_wherever_they_are_named(
    text: str, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = ("gpu:0", "cpu")
    assert read(GOOD + f"compute: {{devices: '{text}'}}\n").compute.devices == wanted
    assert read(GOOD, f"compute.devices='{text}'").compute.devices == wanted
    assert read(GOOD, TETRIS_SIM_DEVICES=text).compute.devices == wanted
    assert read(GOOD, "compute.devices=cpu+gpu").compute.devices == "cpu+gpu"


def test_a_restart_that_is_refused_does_not_say_that_it_continues(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = "output.pictures=false"
    assert said(capsys, "run", str(small), "--set", quick)[0] == ExitCode.OK
    refused = ("run", str(small), "--resume", "auto", "--set", "model.diffusivity=2e-4")
    code, text = said(capsys, *refused)
    assert code not in (ExitCode.OK, ExitCode.INTERNAL)
    assert "Continuing" not in text
    code, text = said(
        capsys, "run", str(small), "--resume", "auto", "--set", "time.steps=7", "--set", quick
    )
    assert code == ExitCode.OK
    assert "Continuing from" in text


def test_a_plan_computes_the_initial_state(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = "initial={type: expression, expression: x}"
    assert said(capsys, "plan", str(small), "--set", good)[0] == ExitCode.OK
    # nan in the last plane only
    bad = "initial={type: expression, expression: 'sqrt(9.4e-3 - y)'}"
    code, text = said(capsys, "plan", str(small), "--set", bad)
    assert code == NumericsError.exit_code
    assert "initial: the expression gives nan at x = 0.00025 m, y = 0.0095 m" in text


# ---- words and numbers


def test_long_times_and_many_bytes_have_units_for_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert format_duration(532 * 3600 + 24 * 60 + 25) == "22 days"
    assert format_duration(47 * 3600) == "47:00:00 h"
    assert format_duration(2.5 * 86400) == "2.5 days"
    assert gib(8.65e4 * 2**30) == "84.5 TiB"
    assert (gib(1023), gib(1023 * 1024), gib(2**20 - 100)) == ("1023 bytes", "1023 KiB", "1 MiB")
    assert gib(2e18) == "1.735 EiB"

    monkeypatch.setattr("tetris_sim.outputs.results.free_bytes", lambda directory: 610 * 1024)
    with pytest.raises(Exception, match=r"would write 84\.5 TiB to .* where 610 KiB are free"):
        refuse_full_disk(tmp_path, int(8.65e4 * 2**30))


def test_a_caret_is_told_to_be_two_stars() -> None:
    with pytest.raises(ExpressionError, match=r"write \*\* instead") as caught:
        compile_expression("3*x^2", ["x"])
    assert caught.value.column == 4


def test_constants_of_an_expression_take_units() -> None:
    text = changed(
        "initial", "initial: {type: expression, expression: a*x, constants: {a: 3 K/mm}}"
    )
    config = read(text)
    assert config.initial.constants == {"a": pytest.approx(3000.0)}  # type: ignore[union-attr]
    assert read(config.resolved_text()) == config
    (told,) = mistakes(text.replace("K/mm", "K/mmm"))
    assert "'K/mmm' in '3 K/mmm' is not a unit" in told


def test_the_functions_stand_on_the_page_of_the_configuration() -> None:
    page = Path(__file__).parents[2] / "docs" / "guide" / "configuration.md"
    line = next(line for line in page.read_text().splitlines() if "and the functions" in line)
    assert all(f"`{name}`" in line for name in FUNCTIONS)


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".txt", ".nc"])
def test_a_file_that_holds_no_field_is_told_what_can_be_read(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"1,2\n")
    grid = Grid((2, 2), (1.0, 1.0), (0.5, 0.5))
    with pytest.raises(ConfigError, match=r"What can be read is a \.npy array, an HDF5 file"):
        open_file(FileInitial(type="file", path=str(path)), grid)


def test_a_length_without_a_unit_beside_one_with_a_unit_is_warned_of(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(capsys, "validate", str(small), "--set", "grid.size=[10, 10 mm]")
    assert code == ExitCode.OK
    assert "grid.size: 10 stands beside '10 mm' without a unit, and counts as 10 m" in text
    assert "beside" not in said(capsys, "validate", str(small))[1]


# ---- physics


def test_robin_without_a_conductivity_names_all_places_for_it() -> None:
    text = changed("model", "model: {type: heat, diffusivity: 1e-4}").replace(
        "{type: dirichlet, value: 300 K}", "{type: robin, h: 5, ambient: 20}"
    )
    (told,) = mistakes(text)
    assert "model.material, model.conductivity, or boundaries.x-.conductivity" in told


def test_a_stencil_of_several_stages_is_refused_with_what_it_is(small: Path) -> None:
    name = "heat-1d-chebyshev3"
    (told,) = mistakes(
        changed("model", f"model: {{type: heat, material: copper, stencil: {name}}}")
    )
    assert "three Chebyshev stages at once" in told
    assert f"model: {{type: stencil, stencil: {name}}}" in told
    (told,) = mistakes(changed("model", "model: {type: heat, material: copper, stencil: het-2d}"))
    assert "did you mean 'heat-2d'" in told

    text = SMALL.replace("type: heat, diffusivity: 1e-4", f"type: stencil, stencil: {name}")
    text = text.replace("[20, 10]", "[20]").replace("[10 mm, 10 mm]", "[1]")
    assert read(text).build().steps == 5  # what the refusal proposes


def test_a_wave_operator_is_not_promised_to_be_stable_as_one() -> None:
    text = SMALL.replace("type: heat, diffusivity: 1e-4", "type: stencil, stencil: acoustic-2d")
    with pytest.raises(Exception, match=r"do not grow, but solve no wave equation; .*pde") as told:
        read(text).build()
    assert "are stable" not in str(told.value)


def test_outputs_of_a_steady_state_need_no_interval() -> None:
    outputs = "output: {fields: {}, probes: [{at: [1 mm, 1 mm]}], statistics: {}}\n"
    text = SMALL.replace("1e-4", "1e-4, conductivity: 1") + outputs
    found = read(text.replace("{steps: 5}", "{scheme: steady}")).output
    assert found.fields is not None
    assert found.statistics is not None
    everys = [found.fields.every, found.statistics.every, *(it.every for it in found.probes)]
    assert {*map(str, everys)} == {"1 step"}
    said = " ".join(mistakes(text))  # over time an interval has to be chosen
    assert "output.probes.0.every: missing" in said
    assert "output.statistics.every: missing" in said


# ---- pictures


def test_pictures_have_the_first_row_of_an_array_at_the_bottom(tmp_path: Path) -> None:
    grid = Grid((8, 8), (1.0, 1.0), (0.5, 0.5))
    values = np.repeat(np.arange(8.0)[:, None], 8, axis=1)

    def read_box(box: Box) -> Values:
        return values[tuple(slice(*span) for span in box)]

    planes = sample(read_box, grid, default_cuts(grid))
    path = tmp_path / "orientation.png"
    draw_state(planes, Caption("u", "1", "u"), moment="t = 0").save(path)
    picture = matplotlib.image.imread(path)[..., :3].sum(axis=2)
    column = picture[:, picture.shape[1] // 2]
    inside = column[column < column.max()]
    assert inside[: len(inside) // 4].mean() > inside[-len(inside) // 4 :].mean()
