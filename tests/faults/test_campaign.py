"""A hundred kills at random moments: every run ends with the bits of one that nobody touched.

`campaign.py` makes a thousand, and more.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.support import campaign

KILLS = {
    "one process": 58,
    "writers": 24,
    "renamed": 12,
    "full disk": 4,
    "ranks": 1,
    "writers of ranks": 1,
}


@pytest.fixture(scope="module")
def _warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    campaign.warm(tmp_path_factory.mktemp("warm"))


def test_there_are_a_hundred_of_every_kind_that_the_campaign_knows() -> None:
    assert sum(KILLS.values()) == 100
    assert KILLS.keys() == campaign.KINDS.keys() == campaign.SHARES.keys()
    assert sum(campaign.SHARES.values()) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.usefixtures("_warm")
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.mpi] * ("ranks" in kind)) for kind in KILLS],
)
def test_a_run_killed_again_and_again_ends_with_the_same_bits(kind: str, tmp_path: Path) -> None:
    if kind == "full disk" and not campaign.small_disks():
        pytest.skip("this system does not let a user mount a small disk (unshare -rm)")
    found = campaign.attack(kind, KILLS[kind], 11, tmp_path / "runs")
    assert not found.failures, "\n".join(found.failures)
    assert found.kills == KILLS[kind]
    assert found.chains > 0
    if found.kills > 10:  # not all were killed before their first checkpoint
        assert found.resumed >= found.kills // 4


@pytest.mark.usefixtures("_warm")
def test_a_run_that_ends_with_other_bits_is_a_failure(tmp_path: Path) -> None:
    chains = campaign.Chains("renamed", tmp_path, random.Random(1))
    (chains._whole / "statistics.csv").write_text("step\n")
    with pytest.raises(AssertionError, match=r"not the same: \['statistics.csv'\]"):
        chains.kill(1)
    shutil.rmtree(tmp_path)


def test_what_does_not_even_begin_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(campaign.KINDS, "writers", (-5, 100, 100, 100))
    found = campaign.attack("writers", 1, 1, tmp_path)
    assert (found.kills, found.chains, len(found.failures)) == (0, 0, 1)


def test_kills_are_divided_between_jobs_and_kinds_without_loss(tmp_path: Path) -> None:
    for jobs in (1, 3, 16):
        tasks = campaign.tasks_of(1000, 22, jobs, tmp_path, list(campaign.KINDS))
        assert sum(task[1] for task in tasks) == 1000
        assert all(task[1] > 0 for task in tasks)
        assert len({task[3] for task in tasks}) == len(tasks)
