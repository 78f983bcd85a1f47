"""`bench devices`: rates of whole grids on sets of devices, alone and on ranks."""

from __future__ import annotations

from typing import Any

import pytest

from tetris_sim.bench import devices
from tetris_sim.bench.devices import bench_devices, compare_to_parts, devices_of, shares_by_speed
from tetris_sim.bench.tables import as_text
from tetris_sim.errors import ConfigError
from tetris_sim.scheduler.comm.communicator import Alone
from tetris_sim.schema import SimulatedSection


def measured(**wanted: Any) -> dict[str, Any]:
    return bench_devices(
        ["heat-2d"],
        shape=(96, 128),
        rounds=2,
        seconds=0.01,
        tuning_budget=0.2,
        ranks=Alone(),
        **wanted,
    )


def test_every_set_is_divided_timed_and_compared_with_its_parts() -> None:
    result = measured(sets=("cpu", "simulated:0", "cpu+simulated:0"), threads=(2,))
    (case,) = result["devices"]
    assert (case["stencil"], case["shape"], case["threads"], case["ranks"]) == (
        "heat-2d",
        [96, 128],
        2,
        1,
    )
    alone, made_up, together, *_ = case["sets"]
    assert [share["worker"] for share in alone["shares"]] == ["cpu:0"]
    assert sum(share["points"] for share in together["shares"]) == 96 * 128
    assert alone["of_sum"] is None
    expected = together["steady"]["median"] / (
        alone["steady"]["median"] + made_up["steady"]["median"]
    )
    assert together["of_sum"] == pytest.approx(expected)
    for each in case["sets"]:
        assert each["steady"]["low"] <= each["steady"]["median"] <= each["steady"]["high"]
        assert 0 <= each["exchange_share"] < 1
        assert each["predicted"] > 0
    text = as_text(result)
    assert "cpu+simulated:0" in text
    assert "of the sum alone" in text


def test_a_set_is_what_compute_devices_has() -> None:
    assert devices_of("gpu:0+cpu") == ("gpu:0", "cpu")
    case = {"devices": "cpu+cpu", "steady": {"median": 1.0}}
    assert compare_to_parts(case, [{"devices": "cpu", "steady": {"median": 1.0}}])["of_sum"] is None


def test_a_set_of_which_a_device_is_left_out_is_measured_with_all_of_them_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = SimulatedSection(speed=3e6, latency=1e-4)
    usual = devices._section
    monkeypatch.setattr(
        devices,
        "_section",
        lambda *wanted: usual(*wanted).model_copy(update={"simulated": slow, "time_block": 4}),
    )
    result = measured(sets=("cpu", "simulated:0", "cpu+simulated:0"), threads=(2,))
    *_, left_out, forced = result["devices"][0]["sets"]
    assert [each["forced"] for each in (left_out, forced)] == [False, True]
    assert len(left_out["shares"]) == 1
    assert len(forced["shares"]) == 2
    assert "each its share by speed alone" in as_text(result)


def test_shares_by_speed_are_in_the_order_of_the_devices() -> None:
    cases = [
        {"devices": name, "steady": {"median": rate}}
        for name, rate in (("cpu", 2.0), ("gpu", 30.0))
    ]
    left_out = {"devices": "cpu+gpu", "steady": {"median": 30.0}, "shares": ["gpu:0"]}
    assert shares_by_speed(left_out, cases) == (30.0, 2.0)
    assert shares_by_speed({**left_out, "shares": ["gpu:0", "cpu:0"]}, cases) == ()
    assert shares_by_speed(left_out, cases[:1]) == ()


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
