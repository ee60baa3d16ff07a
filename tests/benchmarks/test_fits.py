"""Fits are kept as they finish, and count as long as nothing they depend on has changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks import fits
from benchmarks.datasets import SETS, DataSet, Split
from benchmarks.distributions import COVERAGES
from benchmarks.fits import Job, fit_all, measure

if TYPE_CHECKING:
    from pathlib import Path

SPLIT = Split(np.arange(8), np.arange(8, 10))


class MadeUp:
    """Stands in for fits: numbers them, to tell a new one from a kept one."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, job: Job, _data: Path) -> dict[str, Any]:
        if job.options.get("seed") == 13:
            raise RuntimeError("out of luck")
        self.count += 1
        return {"rmse": 1.0, "crps": 0.5, "nll": 0.1, "seconds": 2.0, "number": self.count}


class Bench:
    """Fits that are kept in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made, self.said = folder, MadeUp(), list[str]()

    def run(self, *jobs: Job, fresh: bool = False) -> list[int]:
        reports = fit_all(
            jobs, self.folder, self.folder, workers=1, fresh=fresh, measured=self.made, say=self.said.append
        )
        return [reports[job.name]["number"] for job in jobs]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def process_of(job: Job, data: Path) -> dict[str, Any]:
    return {"rmse": 1.0, "crps": 0.5, "nll": 0.1, "seconds": 2.0, "process": os.getpid()}


def job(name: str, split: Split = SPLIT, **options: Any) -> Job:
    return Job(name, "yacht", split, options)


def test_finished_fits_are_not_made_again(bench: Bench) -> None:
    assert bench.run(job("one")) == [1]
    assert bench.said[-1].endswith("1 of 1 fits, about 0 s left")
    assert bench.run(job("one"), job("two")) == [1, 2]
    assert any("1 of 2 fits are on disk" in line for line in bench.said)
    assert bench.run(job("one"), fresh=True) == [3]


def test_other_options_rows_or_sources_make_a_fit_anew(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = Split(SPLIT.test, SPLIT.training)
    assert bench.run(job("one")) == [1]
    assert bench.run(job("one", seed=1)) == [2]
    assert bench.run(job("one", swapped, seed=1)) == [3]
    monkeypatch.setattr(fits, "sources", lambda: "others")
    assert bench.run(job("one", swapped, seed=1)) == [4]
    assert bench.run(job("one", swapped, seed=1)) == [4]


def test_a_file_cut_short_does_not_count(bench: Bench) -> None:
    bench.run(job("one"))
    path = bench.folder / "one.json"
    path.write_bytes(path.read_bytes()[:-20])
    assert bench.run(job("one")) == [2]


def test_what_finished_before_a_failure_is_kept(bench: Bench) -> None:
    with pytest.raises(RuntimeError, match="out of luck"):
        bench.run(job("one"), job("two", seed=13))
    assert bench.run(job("one")) == [1]


@pytest.mark.slow
def test_several_workers_are_other_processes(tmp_path: Path) -> None:
    jobs = [job("one"), job("two")]
    reports = fit_all(jobs, tmp_path, tmp_path, workers=2, measured=process_of, say=lambda _: None)
    assert set(reports) == {"one", "two"}
    assert os.getpid() not in {report["process"] for report in reports.values()}


def test_a_fit_of_a_small_table_is_judged_on_its_test_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=160)
    target = 100.0 + 10.0 * inputs + generator.normal(size=160)
    (tmp_path / "line.csv").write_text(
        "x,y\n" + "".join(f"{x:.6f},{y:.6f}\n" for x, y in zip(inputs, target, strict=True)), encoding="utf-8"
    )
    monkeypatch.setitem(SETS, "line", DataSet("line", "line.csv", 160, "y", "nowhere"))
    options = {"epochs": 30, "hidden": [8], "members": 1, "noise": "homoscedastic", "batch_size": 32}
    report = measure(Job("line", "line", Split(np.arange(120), np.arange(120, 160)), options), tmp_path)
    assert report["n"] == 40
    assert report["training_rows"] == 120
    assert report["rmse"] < 5.0
    raw = report["quantiles"]["raw"]
    # The mean over 99 levels is near the mixture's closed form, and the bands are those that `judge` counts.
    assert raw["crps"] == pytest.approx(report["crps"], rel=0.05)
    for nominal in COVERAGES:
        assert raw["width"][str(nominal)] == pytest.approx(report["raw"]["width"][str(nominal)], rel=1e-4)
