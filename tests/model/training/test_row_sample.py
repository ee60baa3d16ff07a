"""A training with a budget learns from as many rows as it is enough for, drawn by the seed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from murho.model.tables.splits import MOST_HELD_OUT
from murho.model.training import prepared_table
from murho.model.training.options import TrainOptions, make_options
from murho.model.training.prepared_table import (
    PreparedTable,
    held_out_within_budget,
    prepare_table,
    rows_for_budget,
    rows_within_budget,
)
from murho.model.training.train import train
from tests.model.conftest import Notes, make_table

ROWS = 300
SCALE = 1.37  # whole numbers in order would be the number of the row


def prepared(options: TrainOptions, *, classes: bool = False) -> PreparedTable:
    numbers = np.arange(ROWS, dtype=np.float64)
    target = np.where(numbers % 100 == 7, "rare", "frequent") if classes else np.where(numbers < 200, numbers, np.nan)
    cells = pa.array(target) if classes else pa.array(target, from_pandas=True)
    return prepare_table(pa.table({"x": SCALE * numbers, "y": cells}), "y", options)


@pytest.mark.parametrize(
    ("given", "rows", "used"),
    [
        ({}, 2_000_000, 2_000_000),
        ({"budget": 60.0}, 2_000_000, 30_000),
        ({"budget": 60.0}, 10_000, 10_000),
        ({"budget": 1.0}, 2_000_000, 20_000),
        ({"quick": True}, 2_000_000, 22_500),
        ({"quick": True}, 1_000, 1_000),
    ],
)
def test_rows_are_left_out_only_where_the_time_is_short(given: dict[str, object], rows: int, used: int) -> None:
    assert rows_within_budget(rows, make_options(given)) == used


def test_rows_with_a_target_are_drawn_by_the_seed_in_the_order_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_table, "FEWEST_SAMPLED_ROWS", 50)
    options = make_options({"budget": 0.1, "seed": 4})
    first, second = (rows_for_budget(prepared(options)) for _ in range(2))
    assert first.rows is not None
    assert len(first.rows) == first.table.num_rows == 50
    assert (first.targets == first.rows).all()
    assert (first.columns["x"] == SCALE * first.rows).all()
    assert (np.diff(first.rows) > 0).all()
    assert second.rows is not None
    assert (first.rows == second.rows).all()
    assert "learns from 50 of 200 rows" in first.notes[-1]
    assert rows_for_budget(first) is first
    assert held_out_within_budget(first) == 2_000 < MOST_HELD_OUT


def test_rare_classes_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_table, "FEWEST_SAMPLED_ROWS", 80)
    options = make_options({"budget": 0.1})
    whole = prepared(options, classes=True)
    sample = rows_for_budget(whole)
    assert whole.plan.schema.target.classes is not None
    rare = whole.plan.schema.target.classes.index("rare")
    assert (sample.targets == rare).sum() == 3
    assert len(sample.targets) == 80


def test_a_training_within_its_budget_uses_all_rows() -> None:
    options = make_options({"budget": 60.0})
    whole = prepared(options)
    assert rows_for_budget(whole) is whole
    assert held_out_within_budget(whole) == MOST_HELD_OUT


def test_a_training_on_a_sample_names_rows_as_the_file_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared_table, "FEWEST_SAMPLED_ROWS", 100)
    notes = Notes()
    options = make_options({"epochs": 3, "hidden": (4,), "members": 2, "quick": True})
    monkeypatch.setattr(prepared_table, "ROWS_A_SECOND", 1)
    trained = train(make_table(rows=400), "rent", options, reporter=notes)
    assert trained.spec.training["rows"] == len(trained.evidence.row_numbers) == 100
    assert trained.evidence.row_numbers.max() > 100
    assert any("learns from 100 of 400 rows" in line for line in notes.lines)
