"""The made-up tables of dependent rows."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import dependent
from benchmarks.dependent import TABLES, MadeTable, main, measure, render
from murho.model.training.options import make_options


@pytest.mark.parametrize("name", list(TABLES))
def test_a_table_has_fresh_rows_of_the_same_columns_and_options_that_are_valid(name: str) -> None:
    made = TABLES[name](np.random.default_rng(0))
    assert made.rows.column_names == made.fresh.column_names
    assert made.rows.num_rows >= 600
    assert made.fresh.num_rows >= 2_000
    assert set(made.ignored) <= set(made.rows.column_names)
    make_options(dict(made.options))


def test_copies_are_copies_and_groups_are_new() -> None:
    four = TABLES["four times"](np.random.default_rng(0)).rows
    assert len(set(four["x0"].to_pylist())) == four.num_rows / 4
    plots = TABLES["groups"](np.random.default_rng(0))
    assert not set(plots.rows["plot"].to_pylist()) & set(plots.fresh["plot"].to_pylist())


def test_later_rows_come_later() -> None:
    made = TABLES["AR(1)"](np.random.default_rng(0))
    assert max(made.rows["day"].to_pylist()) < min(made.fresh["day"].to_pylist())


def test_the_line_of_a_table_has_coverage_and_both_scores() -> None:
    scores = {"crps": 1.0, "rmse": 2.0, "raw": 0.8, "coverage": 0.9}
    text = render({"groups, no option": [{"printed": scores | {"crps": 0.5}, "true": scores}] * 2})
    assert "0.500  1.000            0.50" in text


def test_a_run_writes_its_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: object, capsys: object) -> None:
    calls = []

    def stand_in(made: MadeTable, seed: int, budget: float | None, *, told: bool) -> object:
        calls.append((seed, budget, told))
        scores = {"crps": 1.0, "rmse": 2.0, "raw": 0.8, "coverage": 0.9}
        return {"printed": scores, "true": scores}

    monkeypatch.setattr(dependent, "measure", stand_in)
    assert main(["--tables", "drift", "--seeds", "3,4", "--budget", "5", "--output", str(tmp_path)]) == 0
    assert calls == [(3, 5.0, False), (3, 5.0, True), (4, 5.0, False), (4, 5.0, True)]


@pytest.mark.slow
def test_groups_are_covered_with_the_option() -> None:
    made = TABLES["groups"](np.random.default_rng((0, 2)))
    result = measure(made, seed=0, budget=20.0, told=True)
    assert 0.8 <= result["true"]["coverage"] <= 0.98
