"""From the outcome of a search to the content of a checkpoint."""

from __future__ import annotations

import pytest

from murho.model.tables.splits import split_rows
from murho.model.training import rows
from murho.model.training.rows import HoldingOut
from tests.model.conftest import make_table, train_quickly


def test_the_example_row_can_be_asked() -> None:
    trained = train_quickly(make_table())
    example = trained.spec.training["example"]
    assert list(example) == ["size", "district", "lift", "day"]
    assert isinstance(example["lift"], bool)
    assert isinstance(example["day"], str)


def test_standardisation_uses_training_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table()
    split = split_rows(160, 0)
    monkeypatch.setattr(rows, "hold_out", lambda *_: HoldingOut(split, {}, ()))
    target = train_quickly(table, members=1).spec.target
    rent = table.column("rent").to_numpy()[split.training]
    assert target.location == pytest.approx(rent.mean())
    assert target.scale == pytest.approx(rent.std())
