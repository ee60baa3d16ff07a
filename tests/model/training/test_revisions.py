"""Labelled rows for a version of a checkpoint: tables that fit it, and those that don't."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from murho.model.checkpoint.posterior import Posterior
from murho.model.distributions.target_transforms import Logarithm
from murho.model.errors import TableError
from murho.model.training.revisions import labelled_rows
from tests.model.conftest import make_table
from tests.model.rooms import rooms_table


def _with(name: str, changes: dict[int, Any] | list[Any], table: pa.Table | None = None) -> pa.Table:
    """Thirty flats, or the table, with other cells in a column."""
    table = make_table(rows=30, seed=9) if table is None else table
    cells = table.column(name).to_pylist()
    cells = changes if isinstance(changes, list) else [changes.get(row, cell) for row, cell in enumerate(cells)]
    return table.set_column(table.column_names.index(name), name, pa.array(cells))


def test_rows_are_encoded_and_standardised_as_the_checkpoint_does_without_those_that_have_no_target(
    rent: Posterior,
) -> None:
    table = _with("rent", {2: None, 5: None}).append_column("colour", pa.array(["red"] * 30))
    rows = labelled_rows(table, rent)
    assert (rows.left_out, len(rows)) == (2, 28)
    assert rows.encoded.inputs.shape == (28, rent.architecture.inputs)
    np.testing.assert_array_equal(rows.targets, table.column("rent").drop_null().to_numpy())
    back = rows.standardise_targets(rent).double().numpy() * rent.scale + rent.location
    np.testing.assert_allclose(back, rows.targets, rtol=1e-5)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (make_table(rows=30).drop_columns(["lift"]), "'lift'"),
        (make_table(rows=30).drop_columns(["rent"]), "'rent'"),
        (_with("size", ["large"] * 30), r"'size', row 1.*large"),
        (_with("lift", [7.5] * 30), "'lift', row 1"),
        (_with("lift", {6: None}), "'lift', row 7"),
        (_with("district", [float(number) for number in range(30)]), "'district'.*'east'.*numeric"),
        (_with("rent", [None] * 30).cast(make_table(rows=1).schema), "no row has a value"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_column_and_row(rent: Posterior, table: pa.Table, message: str) -> None:
    with pytest.raises(TableError, match=message):
        labelled_rows(table, rent)


def test_a_class_that_the_checkpoint_does_not_know_says_to_train_again(rooms: Posterior) -> None:
    table = _with("room", {2: "attic", 3: None}, rooms_table(rows=4, seed=7))
    with pytest.raises(TableError, match=r"row 3: 'attic' is none of the 3 classes .* train again on all rows") as said:
        labelled_rows(table, rooms)
    assert said.value.row == 3


def test_a_target_that_the_transform_can_not_take_is_refused_by_row(rent: Posterior) -> None:
    target = replace(rent.spec.target, transform=Logarithm(shift=0.0, top=7.0))
    logarithmic = Posterior(replace(rent.spec, target=target), rent.tensors)
    assert len(labelled_rows(make_table(rows=30, seed=9), logarithmic)) == 30
    with pytest.raises(TableError, match=r"row 12: the target -5 .*'log'"):
        labelled_rows(_with("rent", {11: -5.0}), logarithmic)


def test_rows_with_the_same_features_are_one_unit_and_groups_are_those_of_the_training(rent: Posterior) -> None:
    table, training = make_table(rows=30), rent.spec.training
    assert labelled_rows(pa.concat_tables([table, table]), rent).units.count == 30
    options = {**training["options"], "group": ["house"]}
    grouped = Posterior(replace(rent.spec, training={**training, "options": options}), rent.tensors)
    assert not labelled_rows(table, grouped).units.grouped
    units = labelled_rows(table.append_column("house", pa.array(np.arange(30) // 5)), grouped).units
    assert (units.grouped, units.count) == (True, 6)
