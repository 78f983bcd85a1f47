"""`init` and `validate`, and the flags that change a configuration."""

from __future__ import annotations

import argparse
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter, ValidationError

from tetris_sim.__main__ import main
from tetris_sim.commands import add_config_arguments, load
from tetris_sim.commands.init import TEMPLATES, about, template_name, template_text
from tetris_sim.config import Config, load_config
from tetris_sim.config.section_checks import KeyKind, keys_of, open_annotation, tags_of
from tetris_sim.config.sections.conditions import FaceSection
from tetris_sim.config.sections.quantities import Section
from tetris_sim.config.yaml import read_yaml
from tetris_sim.errors import ConfigError, ConfigMistakesError, ExitCode


@pytest.fixture
def plate(tmp_path: Path) -> Path:
    path = tmp_path / "plate.yaml"
    path.write_text(template_text("plate_2d"), encoding="utf-8")
    return path


def validate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["validate", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


# ---- init


@pytest.mark.parametrize("name", [*TEMPLATES, *TEMPLATES.values()])
def test_every_template_is_written_is_right_and_runs_in_seconds(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.yaml"
    assert main(["init", name, "-o", str(path)]) == ExitCode.OK
    assert str(path) in capsys.readouterr().out
    config = load_config(path, environ={})
    problem = config.build()
    # 1e9 point updates take some seconds on two cores; a step costs some 10 us however small it is.
    assert problem.grid.n_points * problem.steps < 2e9
    assert problem.steps < 100_000
    assert path.read_text(encoding="utf-8") == template_text(template_name(name))


def test_the_plate_is_the_template_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == ExitCode.OK
    assert (tmp_path / "config.yaml").read_text(encoding="utf-8") == template_text("plate_2d")
    capsys.readouterr()
    assert main(["init", "rod_1d", "-o", "-"]) == ExitCode.OK
    assert capsys.readouterr().out == template_text("rod_1d")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml"]


def test_a_file_that_is_there_is_not_replaced_unless_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("mine")
    assert main(["init", "plate_2d", "-o", str(path)]) == ExitCode.CONFIG
    assert "is there already" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert main(["init", "plate_2d", "-o", str(path), "--overwrite"]) == ExitCode.OK
    assert path.read_text(encoding="utf-8") == template_text("plate_2d")
    assert main(["init", "-o", str(tmp_path / "no" / "such" / "folder.yaml")]) == ExitCode.CONFIG
    capsys.readouterr()
    assert main(["init", "heat3d", "-o", str(tmp_path / "other.yaml"), "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {
        "template": "block_3d",
        "file": str(tmp_path / "other.yaml"),
    }


def test_a_template_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(
        ConfigError,
        match=r"no template 'plate_3d' \(did you mean 'plate_2d'\?\); there are plate_2d, ",
    ):
        template_name("plate_3d")


def test_the_list_names_every_template(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--list"]) == ExitCode.OK
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [name, alias] for name, alias in TEMPLATES.items()
    ]
    assert main(["init", "--list", "--json"]) == ExitCode.OK
    rows = json.loads(capsys.readouterr().out)
    assert [(row["template"], row["alias"]) for row in rows] == list(TEMPLATES.items())
    assert all(row["about"] == about(row["template"]) for row in rows)


def schema_keys(section: type[Section]) -> set[str]:
    found = set()
    for key, kind in keys_of(section).items():
        found |= {key, *keys_below(kind)}
    return found


def keys_below(kind: KeyKind) -> set[str]:
    if kind.section is not None:
        return schema_keys(kind.section)
    if kind.tag is not None:
        return {key for section in tags_of(kind).values() for key in schema_keys(section)}
    parts = getattr(kind.base, "__args__", ())
    return {
        key for part in parts if part is not Ellipsis for key in keys_below(open_annotation(part))
    }


def test_every_key_of_the_schema_is_explained_in_some_template() -> None:
    texts = [template_text(name) for name in TEMPLATES]
    for key in schema_keys(Config):
        written = re.compile(rf"(^|[\s{{,#]){re.escape(key)}: ?", re.MULTILINE)
        lines = [pair for text in texts for pair in itertools.pairwise(["", *text.splitlines()])]
        shown = [(line, above) for above, line in lines if written.search(line)]
        assert shown, f"{key} is in no template"
        assert any("#" in line or above.lstrip().startswith("#") for line, above in shown), (
            f"{key} has no comment"
        )


def types_of(section: type[Section], top: str, key: str) -> list[Any]:
    """What the key may be somewhere below the key `top` of the whole configuration."""
    if top == "boundaries" and re.fullmatch(r"\*|[xyz][-+]?", key):
        return [FaceSection]
    kind = keys_of(section)[top]
    sections = [kind.section] if kind.section is not None else list(tags_of(kind).values())
    hints_below = [get_type_hints(each, include_extras=True) for each in sections]
    return [hints[key] for hints in hints_below if key in hints]


def test_what_is_commented_out_in_the_templates_would_be_right_too() -> None:
    tried = []
    pairs = [(name, *pair) for name in TEMPLATES for pair in commented_out(template_text(name))]
    for template, line, top in pairs:
        key, _, text = line.partition(": ")
        root, mistakes = read_yaml(text, line)
        assert root is not None
        assert not mistakes
        adapters = [TypeAdapter[Any](each) for each in types_of(Config, top, key.strip('"'))]
        assert adapters, f"{template}: nothing under {top} is called {key}"
        assert any(accepts(adapter, root.plain()) for adapter in adapters), f"{template}: {line}"
        tried.append(f"{top}.{key}")
    assert {
        "grid.spacing",
        "model.weights",
        "initial.path",
        "boundaries.x-",
        "time.steps",
        "output.directory",
    } <= {*tried}


def commented_out(text: str) -> Iterator[tuple[str, str]]:
    """Each line `key: value` that is commented out, and the section it stands in."""
    top = ""
    for line in text.splitlines():
        heading = re.match(r"(\w+):", line)
        top = heading[1] if heading is not None else top
        match = re.match(r"\s+# ([a-z_]+|[xyz][-+]?|\"\*\"): (.+)$", line)
        if match is not None:
            yield f"{match[1]}: {match[2]}", top


def accepts(adapter: TypeAdapter[Any], value: Any) -> bool:
    try:
        adapter.validate_python(value)
    except ValidationError:
        return False
    return True


# ---- validate


def test_a_right_configuration_is_summed_up(
    plate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = validate(capsys, str(plate))
    assert code == ExitCode.OK
    assert out.startswith(
        "ok: 'copper plate', model heat on 256 x 256 points over 0.015 x 0.015 m in float64"
    )
    assert (
        "2702 steps of 7.11325e-06 s (92.0% of the largest stable step) end at t = 0.01922 s" in out
    )
    assert (
        "fields every 0.005 s, 2 probes, statistics every 100 steps, pictures, checkpoints every "
        "10:00 min wall" in out
    )
    assert out.rstrip().endswith("in results/plate.")


def test_a_right_configuration_is_summed_up_for_programs(
    plate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = validate(capsys, str(plate), "--json", "--set", "time={steps: 12}")
    found = json.loads(out)
    assert (code, err) == (ExitCode.OK, "")
    assert (found["valid"], found["problems"], found["steps"]) == (True, [], 12)
    assert found["dt"] == pytest.approx(0.9 * found["dt_limit"])


def test_mistakes_go_to_stderr_and_the_exit_code_says_so(
    plate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plate.write_text(plate.read_text().replace("256, 256", "256, many"))
    code, out, err = validate(capsys, str(plate), "--set", "time.cfl=x", "--threads", "none")
    assert (code, out) == (ExitCode.CONFIG, "")
    assert "Traceback" not in err
    line = 1 + template_text("plate_2d").splitlines().index(
        "  shape: [256, 256] # points along x, y"
    )
    assert (
        f"{plate}:{line}:16: grid.shape.1: 'many' was found; a whole number greater than 0 is "
        "wanted" in err
    )
    assert "--set time.cfl=x: time.cfl: 'x' was found; a number greater than 0 is wanted" in err
    assert "--threads none: compute.threads: 'none' was found" in err


def test_mistakes_are_told_to_programs_one_by_one(
    plate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = validate(
        capsys, str(plate), "--json", "--set", "time.cfl=x", "--set", "grid.shape=3"
    )
    found = json.loads(out)
    assert code == ExitCode.CONFIG
    assert found["valid"] is False
    assert [problem["key"] for problem in found["problems"]] == ["grid.shape", "time.cfl"]


def test_a_problem_that_cannot_be_built_is_not_valid(
    plate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unstable = ("--set", "time.cfl=0.3")
    code, out, err = validate(capsys, str(plate), *unstable)
    assert (code, out) == (ExitCode.UNSTABLE, "")
    assert "largest stable step" in err
    code, out, _ = validate(capsys, str(plate), *unstable, "--json")
    assert code == ExitCode.UNSTABLE
    (problem,) = json.loads(out)["problems"]
    assert "largest stable step" in problem["message"]


def test_a_file_that_is_missing_is_said_to_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = validate(capsys, str(tmp_path / "none.yaml"))
    assert code == ExitCode.CONFIG
    assert (
        "none.yaml: there is no such file; a configuration file is wanted, and `init` writes one"
        in err
    )


# ---- flags


def parse(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_config_arguments(parser)
    return parser.parse_args(words)


def test_flags_count_more_than_set_and_set_more_than_the_file(plate: Path) -> None:
    args = parse(
        str(plate),
        "--set",
        "compute.threads=2",
        "--set",
        "title=other",
        "--threads",
        "5",
        "--device",
        "cpu,cpu",
    )
    config = load(args)
    assert (config.compute.threads, config.compute.devices, config.title) == (
        5,
        ("cpu", "cpu"),
        "other",
    )
    assert load(parse(str(plate), "--device", "cpu")).compute.devices == "cpu"
    assert load(parse(str(plate), "--threads", "auto")).compute.threads == "auto"


def test_a_mistake_in_a_flag_names_the_flag(plate: Path) -> None:
    with pytest.raises(ConfigMistakesError) as caught:
        load(parse(str(plate), "--device", "cpu,tpu"))
    assert (
        str(caught.value)
        == "--device cpu,tpu: compute.devices.1: 'tpu' was found; cpu, gpu:NUMBER or simulated:NUMBER is wanted"
    )


def test_a_method_that_does_not_exist_is_not_valid(
    plate: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = validate(capsys, str(plate), "--set", "compute.method=cpu.strem")
    assert (code, out) == (ExitCode.CONFIG, "")
    assert "compute.method is 'cpu.strem', which is not one of the methods" in err
    assert "did you mean 'cpu.stream'" in err
