"""A simulation that is driven: until a time, with calls, other fields and other faces."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tetris_sim.errors import ConfigError, NumericsError

DT = 2e-4


def plate(**more: Any) -> dict[str, Any]:
    return {
        "grid": {"shape": [20, 14], "size": ["10 mm", "7 mm"]},
        "model": {"type": "heat", "material": "copper"},
        "initial": {"type": "gaussian", "amplitude": 100, "sigma": "2 mm"},
        "boundaries": {"*": {"type": "neumann"}, "x-": {"type": "dirichlet", "value": 20}},
        "time": {"dt": DT, "steps": 10},
        "compute": {"method": "cpu.plain", "threads": 1},
        **more,
    }


def test_going_on_in_pieces_gives_the_same_bits_and_files(tmp_path: Path) -> None:
    output = {
        "fields": {"every": "3 steps"},
        "probes": [{"name": "mid", "at": ["5 mm", "3 mm"], "every": "2 steps"}],
        "statistics": {"every": "4 steps"},
        "pictures": False,
    }
    whole = ts.run(plate(output=output), tmp_path / "whole", progress=False)
    seen: list[tuple[int, float]] = []
    with ts.simulate(plate(output=output), tmp_path / "driven") as sim:
        assert sim.time == 0.0
        sim.run(until=3 * DT)
        assert (sim.step, sim.time) == (3, 3 * DT)
        sim.run(until="1.1 ms", every="0.4 ms", call=lambda it: seen.append((it.step, it.time)))
        assert sim.step == 6  # the first that is not before
        assert sim.run() is None
        field = sim.field()[0]

    assert [step for step, _ in seen] == [4, 6]
    np.testing.assert_array_equal(field, whole.field())
    driven = ts.open_result(tmp_path / "driven")
    assert driven.fields.identical(whole.fields)
    assert driven.statistics.equals(whole.statistics)
    assert driven.probes["mid"].equals(whole.probes["mid"])
    assert driven.report.ended == "Done"


def test_a_block_that_ends_early_leaves_a_checkpoint_to_go_on_from(tmp_path: Path) -> None:
    with ts.simulate(plate(), tmp_path) as sim:
        sim.run(until=4 * DT)
    assert "nobody asked for more" in ts.open_result(tmp_path).report.ended
    rest = ts.run(plate(), tmp_path, resume="auto", progress=False)
    assert (rest.report.first_step, rest.report.step) == (4, 10)
    np.testing.assert_array_equal(rest.field(), ts.run(plate(), progress=False).field())


class OddError(Exception):
    """What is raised by the code around a simulation."""


def raised(failure: BaseException) -> None:
    raise failure


@pytest.mark.parametrize("failure", [OddError(), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("inside", ["block", "call", "after a set field"])
def test_so_does_one_that_an_exception_ends(
    failure: BaseException, inside: str, tmp_path: Path
) -> None:
    output = {"statistics": {"every": "4 steps"}, "pictures": False}

    def drive() -> None:
        with ts.simulate(plate(output=output), tmp_path) as sim:
            if inside == "call":
                sim.run(every=f"{4 * DT} s", call=lambda _: raised(failure))
            sim.run(until=4 * DT)
            if inside == "after a set field":
                sim.set_field(sim.field())
            raise failure

    with pytest.raises(type(failure)):
        drive()
    rest = ts.run(plate(output=output), tmp_path, resume="auto", progress=False)
    assert (rest.report.first_step, rest.report.step) == (4, 10)
    whole = ts.run(plate(output=output), tmp_path / "whole", progress=False)
    np.testing.assert_array_equal(rest.field(), whole.field())
    assert rest.statistics.equals(whole.statistics)


def test_a_state_that_was_left_half_advanced_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is one that holds a NaN; what ended the block is what the user sees."""

    def half() -> None:
        with ts.simulate(plate(), tmp_path / "half") as sim:
            sim.advance(2)
            monkeypatch.setattr(sim.workers[0].stepper, "wait", lambda: raised(OddError()))
            sim.advance(2)

    def nan() -> None:
        with ts.simulate(plate(), tmp_path / "nan") as sim:
            sim.advance(2)
            sim.workers[0].stepper.load(lambda slab: np.full((1, *slab.shape), np.nan), 2)
            raise OddError

    with pytest.raises(OddError):
        half()
    assert not list((tmp_path / "half").rglob("*.h5"))
    with pytest.raises(OddError):
        nan()
    assert not list((tmp_path / "nan").rglob("checkpoint_*.h5"))


@pytest.mark.parametrize(
    "use",
    [
        lambda sim: sim.advance(1),
        lambda sim: sim.field(),
        lambda sim: sim.run(until=9 * DT),
        lambda sim: sim.set_field(np.zeros((14, 20))),
        lambda sim: sim.snapshot().field(),
        lambda sim: sim.close(),
    ],
)
def test_two_threads_do_not_use_it_at_once(use: Callable[[Any], object]) -> None:
    said: list[str] = []

    def other(sim: Any) -> None:
        try:
            use(sim)
        except ConfigError as error:
            said.append(str(error))

    def meanwhile(sim: Any) -> None:
        thread = threading.Thread(target=other, args=(sim,))
        thread.start()
        thread.join(20)
        assert not thread.is_alive()

    with ts.simulate(plate()) as sim:
        sim.run(until=8 * DT, every="4 steps", call=meanwhile)
        assert len(said) == 2
        assert "another thread is using this simulation" in said[0]
        # One after the other is fine.
        other(sim)
        assert len(said) == 2


def test_a_snapshot_is_not_read_while_another_thread_advances() -> None:
    with ts.simulate(plate()) as sim:
        snapshot, said = sim.snapshot(), []

        def read() -> None:
            with pytest.raises(ConfigError, match="another thread"):
                snapshot.field()
            said.append("refused")

        def meanwhile(_: Any) -> None:
            thread = threading.Thread(target=read)
            thread.start()
            thread.join(20)

        sim.run(every="10 steps", call=meanwhile)
        assert said == ["refused"]


@pytest.mark.parametrize("use", [lambda sim: sim.close(), lambda sim: sim.run()])
def test_what_does_not_fit_into_a_call_is_refused(use: Callable[[Any], object]) -> None:
    with ts.simulate(plate()) as sim:
        with pytest.raises(ConfigError, match="inside of `call`"):
            sim.run(every="4 steps", call=use)
        sim.run()
        assert sim.step == 10
        sim.close()
        with pytest.raises(ConfigError, match="the simulation is closed"):
            sim.advance(0)


FORKED = """
import os, sys, warnings
import tetris_sim as ts
warnings.simplefilter("ignore")

{children}

def fork(sim):
    process = os.fork()
    if process == 0:
        return child(sim)
    _, status = os.waitpid(process, 0)
    print("child", os.waitstatus_to_exitcode(status), flush=True)

for number, child in enumerate({names}):
    with ts.simulate({plate!r}, f"{folder}/{{number}}") as sim:
        sim.run(every="4 steps", call=fork)
        print("parent", number, sim.step)
    print("next", file=sys.stderr, flush=True)
"""
# What a child does, and its exit status.
CHILDREN = {
    "sys.exit(7)": 7,
    "sim.advance(1)": 1,
    "sim.field()": 1,
    "raise StopIteration": 1,
    "sim.close(); os._exit(8)": 8,
    "return": 1,
}


def test_a_forked_child_cannot_use_it_and_does_no_harm(tmp_path: Path) -> None:
    given = plate(
        compute={"method": "cpu.tessellate", "threads": 2},
        output={"statistics": {"every": "2 steps"}},
    )
    children = [f"def child{k}(sim):\n    {it}\n" for k, it in enumerate(CHILDREN)]
    names = f"[{', '.join(f'child{k}' for k in range(len(CHILDREN)))}]"
    script = FORKED.format(children="\n".join(children), names=names, plate=given, folder=tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith(("child", "parent"))]
    wanted: list[str] = []
    for number, code in enumerate(CHILDREN.values()):
        wanted += [f"child {code}"] * 3 + [f"parent {number} 10"]
    assert told == wanted, done.stdout + done.stderr
    for said, code in zip(done.stderr.split("next\n"), CHILDREN.values(), strict=False):
        assert ("is a forked child of it" in said) or code != 1, done.stderr
    whole = ts.run(given, tmp_path / "whole", progress=False)
    for number in range(len(CHILDREN)):
        rest = ts.open_result(tmp_path / str(number))
        assert rest.report.ended == "Done"
        assert rest.statistics.equals(whole.statistics)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"until": "1 mm"}, "until: '1 mm' is a length; a time"),
        ({"until": DT}, "step 1; the simulation is at 0.0004 s, step 2, and ends at 0.002 s"),
        ({"until": "1 s"}, "or open it with a later time.t_end"),
        ({"every": "1 ms"}, "every is given without call"),
        ({"call": print}, "call is given without every"),
        ({"every": "1 ms", "call": 3}, "a function of the simulation is wanted"),
        ({"every": "-1 ms", "call": print}, "every: '-1 ms' was found"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_moves(
    arguments: dict[str, Any], words: str
) -> None:
    with ts.simulate(plate()) as sim:
        sim.advance(2)
        with pytest.raises(ConfigError, match=words):
            sim.run(**arguments)
        assert sim.step == 2


def test_a_closed_simulation_says_so() -> None:
    with ts.simulate(plate()) as sim:
        pass
    for use in (
        sim.run,
        lambda: sim.set_field(np.zeros((14, 20))),
        lambda: sim.with_boundary({}),
    ):
        with pytest.raises(ConfigError, match="the simulation is closed"):
            use()


def test_a_call_may_end_the_run() -> None:
    def enough(sim: ts.Simulation) -> None:
        if sim.step >= 4:
            raise StopIteration

    with ts.simulate(plate()) as sim:
        assert sim.run(every="2 steps", call=enough) is None
        assert sim.step == 4


def test_ctrl_c_ends_a_run_after_its_block_and_the_next_goes_on() -> None:
    # In a background job of a shell it may be ignored, and then it stays so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _interrupt_a_run()
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt_a_run() -> None:
    with ts.simulate(plate()) as sim:
        reason = sim.run(every="3 steps", call=lambda it: signal.raise_signal(signal.SIGINT))
        assert reason is not None
        assert "Ctrl-C" in reason.sentence
        assert sim.step == 3
        assert sim.run() is None
        assert sim.step == 10
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_field_may_be_replaced() -> None:
    u = np.random.default_rng(2).uniform(0, 50, (14, 20))
    with ts.simulate(plate()) as sim:
        sim.run(until=5 * DT)
        sim.set_field(u)
        np.testing.assert_array_equal(sim.field()[0], u)
        sim.run()
        field = sim.field()[0]
    five = ts.run(plate(), initial=u, changes={"time.steps": 5}, progress=False)
    np.testing.assert_array_equal(field, five.field())


def test_what_cannot_be_a_field_is_refused() -> None:
    bad = np.ones((14, 20))
    bad[3, 4] = np.nan
    with ts.simulate(plate()) as sim:
        with pytest.raises(ConfigError, match=r"shape \(20, 14\).*\(14, 20\) are wanted"):
            sim.set_field(np.ones((20, 14)))
        with pytest.raises(ConfigError, match="no field 'temp'"):
            sim.set_field(np.ones((14, 20)), "temp")
        with pytest.raises(NumericsError, match=r"values\[3, 4\] is nan"):
            sim.set_field(bad)
        with pytest.raises(ConfigError, match="of <U1"):
            sim.set_field([["a"]])


def test_one_field_of_several_is_replaced_by_name() -> None:
    config = {
        "grid": {"shape": [16], "size": [1.0]},
        "model": {
            "type": "pde",
            "fields": {
                name: {"equation": f"0*{name}", "initial": {"type": "constant", "value": value}}
                for name, value in (("u", 1), ("v", 2))
            },
        },
        "boundaries": {"x": {"type": "periodic"}},
        "time": {"dt": 1e-3, "steps": 5},
        "compute": {"method": "cpu.plain", "threads": 1},
    }
    with ts.simulate(config) as sim:
        sim.run(until=2e-3)
        sim.set_field(np.full(16, 7.0), "v")
        sim.run()
        np.testing.assert_array_equal(sim.field(), [[1.0] * 16, [7.0] * 16])
        with pytest.raises(ConfigError, match=r"with a name, or \(2, 16\)"):
            sim.set_field(np.ones(16))


def test_temperatures_of_a_melting_body_are_set_as_they_are_seen() -> None:
    config = plate(
        model={
            "type": "heat",
            "regions": [{"material": "wax", "box": {"x": ["0 mm", "10 mm"]}}],
            "materials": {
                "wax": {
                    "conductivity": "2 W/(m K)",
                    "density": "900 kg/m^3",
                    "specific_heat": "2000 J/(kg K)",
                    "solidus": "50 degC",
                    "liquidus": "52 degC",
                    "latent_heat": "100 kJ/kg",
                }
            },
        },
        boundaries={"*": {"type": "neumann"}},
    )
    with ts.simulate(config) as sim:
        sim.set_field(np.full((14, 20), 40.0))
        sim.run(until=2 * DT)
        seen = sim.snapshot().seen()
        np.testing.assert_allclose(seen.field()[0], 40.0, rtol=1e-12)


def test_other_faces_go_on_from_the_state_and_the_time(tmp_path: Path) -> None:
    with ts.simulate(plate()) as sim:
        sim.run(until=4 * DT)
        before = sim.field()[0]
        faces = {"x-": {"type": "dirichlet", "value": "200 degC"}}
        with sim.with_boundary(faces, tmp_path) as hot:
            assert hot.time == sim.time
            np.testing.assert_array_equal(hot.field()[0], before)
            hot.run()
            assert hot.time == pytest.approx(10 * DT)
            after = hot.field()[0]
        np.testing.assert_array_equal(sim.field()[0], before)
        with pytest.raises(ConfigError, match="sections by face are wanted"):
            sim.with_boundary(ts.Dirichlet(3.0))

    config = plate(boundaries={"*": {"type": "neumann"}, **faces}, time={"dt": DT, "steps": 6})
    np.testing.assert_array_equal(after, ts.run(config, initial=before, progress=False).field())
    saved = ts.open_result(tmp_path)
    assert saved.report.time_s == pytest.approx(10 * DT)
    assert "200" in (tmp_path / "resolved.yaml").read_text()


HEATED: dict[str, Any] = {
    "grid": {"shape": [8], "size": ["8 cm"]},
    "model": {"type": "heat", "material": "steel", "sources": [{"power": "1e3*t"}]},
    "initial": {"type": "constant", "value": 20},
    "boundaries": {"x": {"type": "dirichlet", "value": "20 + t"}},
    "time": {"t_end": "40 s"},
    "output": {"statistics": {"every": "1 step"}},
    "compute": {"method": "cpu.plain", "threads": 1},
}


def test_sources_and_constants_change_on_the_way() -> None:
    with ts.simulate(HEATED) as sim:
        sim.run(until=10.0)
        faces = {"boundaries": {"*": {"type": "neumann"}}, "model.sources": []}
        with (
            sim.with_changes(faces) as off,
            off.with_changes({"model.sources": [{"power": "1e3*t"}]}) as on,
        ):
            before = on.field().mean()
            on.run()
            # The power is 1e3 t of the one clock: 1e3 (40^2 - 10^2) / 2 J/m2.
            capacity = 7854 * 434 * 0.08
            assert on.field().mean() - before == pytest.approx(7.5e5 / capacity, rel=1e-9)
        with pytest.raises(ConfigError, match="on the same grid"):
            sim.with_changes({"grid.shape": [9]}).__enter__()
        with pytest.raises(ConfigError, match="the simulation is at 10 s already"):
            sim.with_changes({"time.t_end": "5 s"}).__enter__()

    decay = {
        "grid": {"shape": [4], "size": [1.0]},
        "model": {
            "type": "pde",
            "constants": {"k": 0.5},
            "fields": {"u": {"equation": "-k*u", "initial": {"type": "constant", "value": 1}}},
        },
        "boundaries": {"x": {"type": "periodic"}},
        "time": {"dt": 0.125, "t_end": 4.0},
        "compute": {"method": "cpu.plain", "threads": 1},
    }
    with ts.simulate(decay) as sim:
        sim.run(until=1.0)
        with sim.with_changes({"model.constants.k": 1.0}) as faster:
            faster.run(until=2.0)
            with faster.with_changes({"model.constants.k": 0.0}) as still:
                still.run()
                assert (still.time, still.step) == (4.0, 16)
                expected = (1 - 0.5 / 8) ** 8 * (1 - 1 / 8) ** 8
                np.testing.assert_allclose(still.field(), expected)


@pytest.mark.parametrize("steps", [4, 10])
def test_a_field_that_was_set_last_is_what_a_checkpoint_holds(steps: int, tmp_path: Path) -> None:
    config = plate(checkpoint={"every": "2 steps"})
    with ts.simulate(config, tmp_path / "a") as sim:
        sim.run(until=steps * DT)
        sim.set_field(np.full((14, 20), 7.0))
    checkpoint = ts.open_result(tmp_path / "a").field()
    np.testing.assert_array_equal(checkpoint, np.full((14, 20), 7.0))

    # Steps without outputs leave their state, too, up to the last one.
    with ts.simulate(config, tmp_path / "b") as sim:
        sim.advance(10)
        after = sim.field()[0]
    np.testing.assert_array_equal(ts.open_result(tmp_path / "b").field(), after)


def test_faces_of_a_bare_problem_are_a_boundary() -> None:
    problem = ts.make_config(plate(boundaries={"*": {"type": "neumann"}})).build()
    with ts.open_simulation(problem, ts.make_plan(problem, ts.find_machine())) as sim:
        sim.run(until=4 * DT)
        cold = ts.Boundary.everywhere(ts.Dirichlet(0.0), 2)
        with sim.with_boundary(cold) as other:
            other.run()
            assert other.time == pytest.approx(10 * DT)
            assert other.field().max() < sim.field().max()
        with pytest.raises(ConfigError, match="a Boundary is wanted"):
            sim.with_boundary({"x": {}})
        with pytest.raises(ConfigError, match="same number of axes"):
            sim.with_boundary(ts.Boundary.everywhere(ts.Dirichlet(0.0), 3))


def test_arguments_that_do_not_fit_end_in_sentences() -> None:
    with pytest.raises(ConfigError, match="diffusivity by itself does not say how long a step is"):
        ts.thermal_diffusion(np.zeros((9, 9)), 10, diffusivity=1e-4)
    with pytest.raises(ValueError, match=r"Robin\(h=\) takes a finite number, got '5'"):
        ts.Robin(h="5", ambient=1)  # type: ignore[arg-type]
