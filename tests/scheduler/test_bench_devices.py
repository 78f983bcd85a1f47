"""`bench devices`: rates of whole grids on sets of devices, alone and on ranks."""

from __future__ import annotations

from typing import Any

import pytest

from tetris_sim.bench import gpu
from tetris_sim.bench.gpu import bench_devices, compare_to_parts, devices_of, shares_by_speed
from tetris_sim.bench.result import BenchResult, SetRow, SetShare, Timing
from tetris_sim.bench.tables import as_text
from tetris_sim.config.sections.schema import SimulatedSection
from tetris_sim.errors import ConfigError
from tetris_sim.scheduler.comm.communicator import Alone


def measured(**wanted: Any) -> BenchResult:
    return bench_devices(
        ["heat-2d"],
        shape=(96, 128),
        rounds=2,
        seconds=0.01,
        tuning_budget=0.2,
        ranks=Alone(),
        **wanted,
    )


def timed(devices: str, rate: float, *workers: str) -> SetRow:
    return SetRow(
        devices,
        Timing(rate, rate, rate),
        tuple(SetShare(worker, points=1) for worker in workers),
        forced=False,
        predicted=rate,
        time_block=1,
        exchange_share=0.0,
    )


def test_every_set_is_divided_timed_and_compared_with_its_parts() -> None:
    result = measured(sets=("cpu", "simulated:0", "cpu+simulated:0"), threads=(2,))
    (case,) = result.devices
    assert (case.stencil, case.shape, case.threads, case.ranks) == ("heat-2d", (96, 128), 2, 1)
    alone, made_up, together, *_ = case.sets
    assert [share.worker for share in alone.shares] == ["cpu:0"]
    assert sum(share.points for share in together.shares) == 96 * 128
    assert alone.of_sum is None
    assert together.of_sum == pytest.approx(together.rate / (alone.rate + made_up.rate))
    for row in case.sets:
        assert row.steady.low <= row.rate <= row.steady.high
        assert 0 <= row.exchange_share < 1
        assert row.predicted > 0
    text = as_text(result)
    assert "cpu+simulated:0" in text
    assert "of the sum alone" in text


def test_a_set_is_what_compute_devices_has() -> None:
    assert devices_of("gpu:0+cpu") == ("gpu:0", "cpu")
    assert compare_to_parts(timed("cpu+cpu", 1.0), [timed("cpu", 1.0)]).of_sum is None


def test_a_set_of_which_a_device_is_left_out_is_measured_with_all_of_them_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = SimulatedSection(speed=3e6, latency=1e-4)
    usual = gpu._section
    monkeypatch.setattr(
        gpu,
        "_section",
        lambda *wanted: usual(*wanted).model_copy(update={"simulated": slow, "time_block": 4}),
    )
    result = measured(sets=("cpu", "simulated:0", "cpu+simulated:0"), threads=(2,))
    *_, left_out, forced = result.devices[0].sets
    assert [row.forced for row in (left_out, forced)] == [False, True]
    assert len(left_out.shares) == 1
    assert len(forced.shares) == 2
    assert "each its share by speed alone" in as_text(result)


def test_shares_by_speed_are_in_the_order_of_the_devices() -> None:
    others = [timed("cpu", 2.0), timed("gpu", 30.0)]
    assert shares_by_speed(timed("cpu+gpu", 30.0, "gpu:0"), others) == (30.0, 2.0)
    assert shares_by_speed(timed("cpu+gpu", 30.0, "gpu:0", "cpu:0"), others) == ()
    assert shares_by_speed(timed("cpu+gpu", 30.0, "gpu:0"), others[:1]) == ()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"sets": ("cpu", "tpu")}, r"compute\.devices: .*tpu"),
        ({"gpu_memory": "lots"}, r"compute\.gpu_memory: 'lots'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_measured(
    wanted: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        measured(**wanted)
