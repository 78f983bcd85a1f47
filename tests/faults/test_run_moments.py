from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.support.fault_runs import assert_same_results, tetris_here
from tetris_sim.outputs.series import open_fields

BLOCK = """
title: Block
grid: {{shape: [9, 8, 7], size: [18 mm, 16 mm, 14 mm]}}
model: {{type: heat, material: copper}}
initial: {{type: expression, expression: "100*exp(-((x-0.01)**2+(y-0.01)**2)/1e-5)"}}
boundaries: {{"*": {{type: robin, h: 100, ambient: 20}}, z-: {{type: dirichlet, value: 30}}}}
time: {{dt: 5 ms, steps: 40}}
compute: {{method: cpu.plain, threads: 1}}
output:
  directory: {folder}/out
  fields: {{at: [12 ms, 50 ms, 112 ms]}}
  parts:
    - {{name: middle, slice: {{y: 8 mm}}, every: 20 ms, at: [112 ms]}}
    - {{name: bottom, slice: {{z: 0}}, box: {{x: [0, 9 mm]}}, every: 100 ms}}
    - {{name: line, slice: {{y: 8 mm, x: 3 mm}}, every: 100 ms, compression: gzip}}
  probes: [{{at: [1 mm, 2 mm, 3 mm], every: 50 ms, name: one}}]
  statistics: {{every: 50 ms}}
  pictures: false
checkpoint: {{every: 11 steps, keep: 9}}
"""


def run(folder: Path, *how: object) -> Path:
    folder.mkdir(exist_ok=True)
    config = folder / "block.yaml"
    config.write_text(BLOCK.format(folder=folder))
    done = tetris_here("run", config, *how)
    assert done.returncode == 0, done.stderr
    return folder / "out"


def test_a_run_continued_between_the_two_steps_around_a_time_has_the_same_bits(
    tmp_path: Path,
) -> None:
    whole, broken = run(tmp_path / "whole"), run(tmp_path / "broken")
    with open_fields(whole / "fields.h5") as series:
        assert (series.steps, series.times) == ((3, 10, 23), (0.012, 0.05, 0.112))
    with open_fields(whole / "fields-middle.h5") as series:
        assert series.times[:3] == (0.0, 0.02, 0.04)
        assert 0.112 in series.times
    for later in sorted((broken / "checkpoints").glob("checkpoint_*.h5")):
        if int(later.stem.split("_")[1]) > 22:
            later.unlink()
    again = run(tmp_path / "broken", "--resume", "auto")  # at step 22, 0.110 s
    assert_same_results(again, whole)


def test_parts_are_read_by_info_plot_and_export_and_removed_by_overwrite(tmp_path: Path) -> None:
    out = run(tmp_path)
    (out / "fields-mine.h5").write_text("not ours")
    said = json.loads(tetris_here("info", out, "--json").stdout)
    assert [Path(part["path"]).name for part in said["parts"]] == [
        f"fields-{name}.h5" for name in ("bottom", "line", "middle")
    ]
    assert [(part["axes"], part["cut_m"]) for part in said["parts"]] == [
        (["x", "y"], {"z": 0.0}),
        (["z"], {"y": 0.008, "x": 0.003}),
        (["x", "z"], {"y": 0.008}),
    ]
    assert "(x, z)" in tetris_here("info", out).stdout

    with open_fields(out / "fields-bottom.h5") as series:
        assert np.array_equal(series.read(1, 0, ((0, 8), (0, 5))), np.full((8, 5), 30.0))
    for name, suffixes in (("middle", ("png", "nc", "vtkhdf", "xdmf")), ("line", ("png", "csv"))):
        for suffix in suffixes:
            target = tmp_path / f"{name}.{suffix}"
            done = tetris_here("export", out / f"fields-{name}.h5", "-o", target)
            assert done.returncode == 0, done.stderr
            assert target.stat().st_size > 0
    assert (tmp_path / "line.csv").read_text().startswith("step,time [s],z [m],")
    done = tetris_here("plot", out / "fields-middle.h5", "-o", tmp_path / "plot.png")
    assert done.returncode == 0, done.stderr

    config = tmp_path / "block.yaml"
    only_whole = ("--set", "output.parts=[]", "--overwrite")
    assert tetris_here("run", config, *only_whole).returncode == 0
    assert [path.name for path in out.glob("fields-*")] == ["fields-mine.h5"]
