from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from murho.model.runtime import available_processors, let_threads_sleep

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def test_without_a_quota_all_processors_of_the_affinity_count(tmp_path: Path) -> None:
    assert available_processors(tmp_path) == 8


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("200000 100000", 2), ("150000 100000", 2), ("50000 100000", 1), ("max 100000", 8), ("garbage", 8)],
)
def test_a_quota_of_version_2_limits_the_count(tmp_path: Path, quota: str, expected: int) -> None:
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert available_processors(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [("300000", 3), ("-1", 8), ("1600000", 8)])
def test_a_quota_of_version_1_limits_the_count(tmp_path: Path, quota: str, expected: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert available_processors(tmp_path) == expected


def test_threads_sleep_while_they_wait_unless_somebody_wants_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    let_threads_sleep()
    assert (os.environ["OMP_WAIT_POLICY"], os.environ["OPENBLAS_NUM_THREADS"]) == ("active", "3")
    monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    let_threads_sleep()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
