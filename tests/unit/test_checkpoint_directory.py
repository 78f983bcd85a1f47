from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.support.checkpoint_samples import (
    awkward_field,
    bits,
    make_problem,
    make_state,
    reader,
    save,
    whole,
)
from tetris_sim.config import Config, read_config
from tetris_sim.errors import CheckpointError, UnsupportedError
from tetris_sim.outputs.checkpoint import (
    Checkpoint,
    find_checkpoint,
    forget_later,
    good_checkpoints,
    open_checkpoint,
    problem_digest,
    refuse_changed_problem,
    write_checkpoint,
    write_crash_dump,
)


def _name(step: int) -> str:
    return f"checkpoint_{step:012d}.h5"


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _found_step(directory: Path) -> int | None:
    found, _ = find_checkpoint(directory)
    if found is None:
        return None
    with found:
        problem = make_problem()
        assert np.array_equal(
            bits(found.read(whole(problem))), bits(awkward_field(problem, seed=found.state.step))
        )
        return found.state.step


def _damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def test_there_is_nothing_to_find_where_nothing_is(tmp_path: Path) -> None:
    assert find_checkpoint(tmp_path) == (None, ())
    assert find_checkpoint(tmp_path / "missing") == (None, ())


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_are_kept(tmp_path: Path, keep: int) -> None:
    for step in (10, 20, 30, 1000, 2000):
        save(tmp_path, step, keep=keep)
    assert _names(tmp_path) == [_name(step) for step in (10, 20, 30, 1000, 2000)[-keep:]]
    assert _found_step(tmp_path) == 2000


def test_steps_are_compared_as_numbers(tmp_path: Path) -> None:
    for step in (999_999_999_999, 1_000_000_000_000):
        save(tmp_path, step)
    assert _found_step(tmp_path) == 1_000_000_000_000


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    save(tmp_path, 10, run_id="first")
    save(tmp_path, 10, run_id="second")
    assert _names(tmp_path) == [_name(10)]
    with open_checkpoint(tmp_path / _name(10)) as checkpoint:
        assert checkpoint.state.run_id == "second"


def test_a_damaged_newest_one_is_passed_over_with_a_sentence(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(tmp_path, step)
    _damage(tmp_path / _name(30))
    (tmp_path / _name(20)).write_bytes(b"")
    found, sentences = find_checkpoint(tmp_path)
    assert found is not None
    assert found.state.step == 10
    found.close()
    assert len(sentences) == 2
    assert sentences[0].startswith(
        f"Skipped: {tmp_path / _name(30)} is damaged: something among its bytes"
    )
    assert str(tmp_path / _name(20)) in sentences[1]
    assert _names(tmp_path) == [_name(10), _name(20), _name(30)]


def test_damaged_ones_are_not_counted_and_the_only_good_one_stays(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(tmp_path, step)
    for step in (20, 30):
        content = (tmp_path / _name(step)).read_bytes()
        (tmp_path / _name(step)).write_bytes(content[:-1])
    save(tmp_path, 40, keep=2)
    assert [path.name for path in good_checkpoints(tmp_path)] == [_name(40), _name(10)]
    save(tmp_path, 50, keep=2)
    assert [path.name for path in good_checkpoints(tmp_path)] == [_name(50), _name(40)]


def test_nothing_but_our_own_good_checkpoints_is_ever_removed(tmp_path: Path) -> None:
    save(tmp_path, 1)
    foreign = [
        "checkpoint_mine.h5",
        "checkpoint_12.h5",
        "notes.txt",
        "crash_000000000001.h5",
        _name(2),
    ]
    for name in foreign:
        (tmp_path / name).write_text("not a checkpoint")
    for step in (10, 20):
        save(tmp_path, step, keep=1)
    assert _names(tmp_path) == sorted([*foreign, _name(20)])


def test_saving_never_removes_what_it_has_just_saved(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(tmp_path, step)
    save(tmp_path, 15, keep=1)
    assert _names(tmp_path) == [_name(15)]


def test_a_run_that_goes_back_forgets_what_came_later(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(tmp_path, step)
    (tmp_path / _name(40)).write_bytes(b"damaged")
    forget_later(tmp_path, 20)
    assert _names(tmp_path) == [_name(10), _name(20), _name(40)]
    assert _found_step(tmp_path) == 20


def test_what_a_killed_run_left_unfinished_is_removed_by_who_may(tmp_path: Path) -> None:
    save(tmp_path, 10)
    part = tmp_path / f"{_name(20)}.4711.part"
    part.write_bytes(b"half a checkp")
    looked_at, sentences = find_checkpoint(tmp_path, tidy=False)
    assert looked_at is not None
    looked_at.close()
    assert (sentences, part.exists()) == ((), True)
    assert _found_step(tmp_path) == 10
    assert _names(tmp_path) == [_name(10)]


def test_a_crash_dump_is_never_found_whatever_it_is_called(tmp_path: Path) -> None:
    save(tmp_path, 10)
    problem = make_problem()
    u = np.full(problem.state_shape, np.nan)
    dump = write_crash_dump(tmp_path, make_state(problem, 20), problem, reader(u))
    assert _found_step(tmp_path) == 10
    shutil.copy(dump, tmp_path / _name(20))
    found, sentences = find_checkpoint(tmp_path)
    assert found is not None
    assert found.state.step == 10
    found.close()
    assert "NaN" in sentences[0]
    assert good_checkpoints(tmp_path) == [tmp_path / _name(10)]


def test_a_disk_without_room_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 10)
    problem = make_problem()
    usage = shutil.disk_usage(tmp_path)

    def read(box: object) -> np.ndarray:
        raise AssertionError

    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=problem.state_bytes))
    with pytest.raises(UnsupportedError) as raised:
        write_checkpoint(tmp_path, make_state(problem, 20), problem, read, keep=1)
    message = str(raised.value)
    assert _name(20) in message
    assert f"{problem.state_bytes} are free" in message
    assert f"The last good checkpoint is {tmp_path / _name(10)}." in message
    assert _names(tmp_path) == [_name(10)]


def test_a_disk_that_cannot_tell_its_size_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(total=0, used=0, free=0))
    save(tmp_path, 20)
    assert _found_step(tmp_path) == 20


CONFIG = """
schema: 1
grid: {shape: [8, 6], size: [8 mm, 6 mm]}
model: {type: heat, material: copper}
initial: {type: constant, value: 20 degC}
boundaries: {"*": {type: neumann, flux: 0}, x-: {type: dirichlet, value: 50}}
time: {cfl: 0.2, t_end: 1 ms}
"""


def _config(*overrides: str) -> Config:
    return read_config(
        CONFIG, name="plate.yaml", base=Path.cwd(), overrides=list(overrides), environ={}
    )


@pytest.fixture
def plate(tmp_path: Path) -> Checkpoint:
    """A checkpoint of CONFIG."""
    config = _config()
    problem = config.build()
    state = make_state(problem, 4, config=config.resolved_text())
    u = np.full(problem.state_shape, 20.0)
    return open_checkpoint(write_checkpoint(tmp_path, state, problem, reader(u), keep=1))


def _continue(plate: Checkpoint, *overrides: str) -> None:
    with plate:
        config = _config(*overrides)
        refuse_changed_problem(plate, config, config.build(dt=plate.state.dt))


@pytest.mark.parametrize(
    "override",
    [
        "title=another",
        "time.t_end=2 ms",
        "output.statistics.every=2 steps",
        "output.directory=elsewhere",
        "compute.threads=1",
        "checkpoint.keep=5",
        "run.max_walltime=1 h",
    ],
)
def test_what_is_not_physics_may_change_at_a_restart(plate: Checkpoint, override: str) -> None:
    _continue(plate, override)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("grid.shape=[6, 8]", "grid.shape is [6, 8], and was [8, 6]"),
        ("grid.size=[8 mm, 5 mm]", "grid.size is"),
        ("model.material=steel", "model.material is"),
        ("initial.value=21", "initial.value is 21"),
        ("boundaries.x-.value=49", "boundaries.x-.value is 49"),
        (
            "boundaries.y={type: periodic}",
            "boundaries.y.type is periodic, and was not given before",
        ),
        ("compute.precision=float32", "compute.precision is float32, and was float64"),
        ("time.cfl=0.1", "time.cfl is 0.1, and was 0.2"),
    ],
)
def test_changed_physics_is_refused_and_the_difference_shown(
    plate: Checkpoint, override: str, said: str
) -> None:
    with pytest.raises(CheckpointError) as raised:
        _continue(plate, override)
    assert said in str(raised.value)
    assert str(plate.path) in str(raised.value)


def test_all_differences_are_shown_at_once(plate: Checkpoint) -> None:
    with pytest.raises(
        CheckpointError, match=r"grid\.size is .*; .*initial\.value is .*; .*time\.cfl is"
    ):
        _continue(plate, "time.cfl=0.1", "initial.value=21", "grid.size=[9 mm, 9 mm]")


def test_a_problem_that_differs_without_any_key_is_refused(plate: Checkpoint) -> None:
    config = _config()
    problem = config.build()
    with (
        plate,
        pytest.raises(
            CheckpointError,
            match=r"another grid, stencil, time step or boundary than in .* 0\.1\.0",
        ),
    ):
        refuse_changed_problem(plate, config, dataclasses.replace(problem, dt=problem.dt / 2))


def test_a_configuration_that_cannot_be_read_any_more_leaves_the_digest_to_decide(
    tmp_path: Path,
) -> None:
    config = _config()
    problem = config.build()
    state = make_state(problem, 4, config="schema: 0\n", problem_digest=problem_digest(problem))
    u = np.full(problem.state_shape, 20.0)
    with open_checkpoint(
        write_checkpoint(tmp_path, state, problem, reader(u), keep=1)
    ) as checkpoint:
        refuse_changed_problem(checkpoint, config, problem)
        with pytest.raises(CheckpointError, match="another grid"):
            refuse_changed_problem(
                checkpoint, config, dataclasses.replace(problem, dt=problem.dt / 2)
            )


def test_a_crash_dump_cannot_be_continued_and_the_last_good_checkpoint_is_named(
    tmp_path: Path,
) -> None:
    good = save(tmp_path, 10)
    problem = make_problem()
    dump = write_crash_dump(
        tmp_path, make_state(problem, 20), problem, reader(awkward_field(problem))
    )
    with open_checkpoint(dump) as checkpoint, pytest.raises(CheckpointError) as raised:
        refuse_changed_problem(checkpoint, _config(), problem)
    assert "NaN" in str(raised.value)
    assert str(good) in str(raised.value)
