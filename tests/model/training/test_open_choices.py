"""What a search starts from and tries: whitening, noise, transforms and encodings that suit the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

from murho.model.training import candidates as candidates_module
from murho.model.training.options import make_options
from murho.model.training.train import train
from tests.model.conftest import Notes, make_table, with_losses_of_judges
from tests.model.rooms import rooms_table

QUICK = {"epochs": 12, "hidden": (6,), "members": 2}


@pytest.mark.parametrize(("apart", "whitened"), [(0.05, True), (0.5, False)])
def test_whitening_that_is_asked_for_is_done_where_there_is_something_to_whiten(apart: float, whitened: bool) -> None:
    load, difference = np.random.default_rng(0).normal(size=(2, 200))
    table = pa.table({"left": load, "right": load + apart * difference, "wear": difference})
    fixed = {"noise": "homoscedastic", "transform": "none", "encoding": "standard", "temperature": 1.0}
    spec = train(table, "wear", make_options(QUICK | fixed | {"whiten": "yes"}), reporter=Notes()).spec
    assert {one["whitened"] for one in spec.training["candidates"]} == {whitened}
    assert (spec.encoder.whitening is not None) == whitened


@pytest.mark.parametrize(
    ("few_rows", "apart", "tried"), [(100, 0.05, {False, True}), (100, 0.5, {False}), (1000, 0.05, {False})]
)
def test_whitening_is_tried_where_a_difference_is_well_hidden_and_rows_are_many(
    monkeypatch: pytest.MonkeyPatch, few_rows: int, apart: float, tried: set[bool]
) -> None:
    monkeypatch.setattr(candidates_module, "FEW_ROWS", few_rows)
    load, difference = np.random.default_rng(0).normal(size=(2, 300))
    table = pa.table({"left": load, "right": load + apart * difference, "wear": difference})
    options = make_options(QUICK | {"noise": "homoscedastic", "transform": "none", "encoding": "standard"})
    spec = train(table, "wear", options, reporter=Notes()).spec
    candidates = spec.training["candidates"]
    assert {one["whitened"] for one in candidates} == tried
    assert (spec.encoder.whitening is not None) == candidates[-1]["whitened"] == (True in tried)


def test_a_small_table_is_tried_with_homoscedastic_noise_instead_of_a_mixture() -> None:
    candidates = train(make_table(), "rent", make_options(QUICK), reporter=Notes()).spec.training["candidates"]
    assert {one["noise"] for one in candidates} == {"heteroscedastic", "homoscedastic"}


def test_a_target_with_negative_values_is_not_offered_the_logarithm() -> None:
    table = make_table()
    shifted = pa.compute.subtract(table["rent"], 800.0)
    table = table.set_column(table.column_names.index("rent"), "rent", shifted)
    candidates = train(table, "rent", make_options(QUICK), reporter=Notes()).spec.training["candidates"]
    assert {one["transform"] for one in candidates} == {"none"}


def test_classes_of_few_rows_start_from_the_mixed_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    table = rooms_table(rows=120)
    quick = {"epochs": 2, "hidden": (6,), "members": 10}

    def encodings(given: pa.Table, **options: Any) -> set[object]:
        spec = train(given, "room", make_options(quick | options), reporter=Notes()).spec
        return {one["encoding"] for one in spec.training["candidates"]}

    with_losses_of_judges(monkeypatch, 0.3, 0.3, 0.2)
    assert encodings(table) == {"mixed"}
    assert encodings(table, encoding="standard") == {"standard"}
    assert encodings(table, members=2) == {"standard", "piecewise"}  # one judge a row
    assert encodings(table, quick=True) == {"standard"}
    assert encodings(table.select(["district", "lift", "room"])) == {"standard"}  # no number, no bins


def test_from_many_rows_on_classes_try_one_encoding_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates_module, "FEW_ROWS", 100)
    options = make_options({"epochs": 2, "hidden": (6,), "members": 10})
    spec = train(rooms_table(rows=200), "room", options, reporter=Notes()).spec
    assert {one["encoding"] for one in spec.training["candidates"]} == {"standard", "piecewise"}
