"""The parts of std beside a known function and a known noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks import spread_parts
from benchmarks.spread_parts import FUNCTIONS, main, measure, render
from murho.model.training.options import make_options
from tests.benchmarks.pools import PoolHere

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_only_the_first_five_numbers_matter() -> None:
    x = np.random.default_rng(0).random((50, 10))
    for function, features in FUNCTIONS.values():
        rows = x[:, :features]
        changed = rows.copy()
        changed[:, 5:] = 0.0
        np.testing.assert_array_equal(function(rows), function(changed))
        for number in range(5):
            moved = rows.copy()
            moved[:, number] = 1.0 - moved[:, number] ** 2
            assert not np.allclose(function(rows), function(moved))


def test_a_fit_is_compared_with_noise_and_error(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = {"hidden": (8,), "members": 2, "epochs": 30, "noise": "homoscedastic", "encoding": "standard"}
    quick |= {"transform": "none", "temperature": 1.0}
    monkeypatch.setattr(spread_parts, "make_options", lambda given: make_options(quick | given))
    found = measure("sinusoids", 300, 0)
    # So short a fit has learned little: what it has not learned counts as noise.
    assert 1.0 < found["raw noise"] < 4.0
    assert 0.0 < found["raw doubt"] < 1.5


def test_a_line_has_the_means_over_seeds() -> None:
    runs = [
        {"function": "Friedman", "rows": 200, "seed": seed}
        | {"noise": 1.0 + seed, "doubt": 0.5, "raw noise": 2.0, "raw doubt": 0.25}
        for seed in range(2)
    ]
    assert render(runs).splitlines()[-1].split() == ["Friedman", "200", "2", "1.50", "0.50", "2.00", "0.25"]


def test_a_run_writes_its_numbers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(spread_parts, "ProcessPoolExecutor", PoolHere)
    parts = {"noise": 1.0, "doubt": 1.0, "raw noise": 1.0, "raw doubt": 1.0}
    monkeypatch.setattr(spread_parts, "measure", lambda *_: parts)
    assert main(["--functions", "sinusoids", "--rows", "400,200", "--output", str(tmp_path)]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[2:4]] == [
        ["sinusoids", "200"],
        ["sinusoids", "400"],
    ]
    assert (tmp_path / "spread_parts.json").exists()
