"""Versions of a checkpoint as revisions, and tables that fit them or do not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
import torch

from murho.model.checkpoint.checkpoint import write_checkpoint
from murho.model.checkpoint.posterior import Posterior
from murho.model.distributions.transforms import Logarithm
from murho.model.encoding.encoder import Encoded
from murho.model.errors import CheckpointError, TableError
from murho.model.predictive.prediction import PredictOptions
from murho.model.training.revisions import Revision, labelled_rows
from tests.model.conftest import make_table

if TYPE_CHECKING:
    from pathlib import Path


def _replaced(table: pa.Table, name: str, values: object) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values, from_pandas=True))


def test_a_version_that_is_read_and_written_again_answers_the_same(rent_checkpoints: Path, tmp_path: Path) -> None:
    revision = Revision.read(rent_checkpoints / "rent" / "1")
    directory = write_checkpoint(tmp_path, "rent", revision.spec.made_now(), revision.tensors)
    again = Revision.read(directory)
    assert all(torch.equal(tensor, again.tensors[name]) for name, tensor in revision.tensors.items())
    rows = Encoded.like(np.zeros((3, revision.posterior.architecture.inputs), dtype=np.float32))
    ours, theirs = (one.posterior.predict_encoded(rows, PredictOptions()).percentiles for one in (revision, again))
    np.testing.assert_array_equal(ours, theirs)


def test_a_damaged_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rent" / "1").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="missing"):
        Revision.read(tmp_path / "rent" / "1")


def test_rows_are_encoded_and_standardised_as_the_checkpoint_does(rent: Posterior) -> None:
    table = make_table(rows=30, seed=9)
    rows = labelled_rows(table, rent)
    np.testing.assert_array_equal(rows.targets, table.column("rent").to_numpy())
    back = rows.standardised(rent).double().numpy() * rent.scale + rent.location
    np.testing.assert_allclose(back, rows.targets, rtol=1e-5)
    assert rows.encoded.inputs.shape == (30, rent.architecture.inputs)
    assert rows.left_out == 0


def test_rows_without_a_target_are_left_out_and_columns_without_use_passed_over(rent: Posterior) -> None:
    table = make_table(rows=30, seed=9).append_column("colour", pa.array(["red"] * 30))
    values = table.column("rent").to_numpy().copy()
    values[[2, 5]] = np.nan
    rows = labelled_rows(_replaced(table, "rent", values), rent)
    assert rows.left_out == 2
    assert len(rows) == len(rows.encoded) == 28
    np.testing.assert_array_equal(rows.targets, np.delete(table.column("rent").to_numpy(), [2, 5]))


def test_unseen_categories_and_values_beyond_the_range_are_counted_not_refused(rent: Posterior) -> None:
    table = make_table(rows=30, seed=9)
    size = table.column("size").to_numpy(zero_copy_only=False).copy()
    size[:3] = 900.0
    table = _replaced(table, "size", size)
    districts = table.column("district").to_pylist()
    districts[4] = "south"
    rows = labelled_rows(_replaced(table, "district", districts), rent)
    assert rows.outside["size"] == 3
    assert rows.outside["district"] == 1


def test_a_table_that_does_not_fit_is_refused_by_column(rent: Posterior) -> None:
    table = make_table(rows=30, seed=9)
    with pytest.raises(TableError, match="'lift'"):
        labelled_rows(table.drop_columns(["lift"]), rent)
    with pytest.raises(TableError, match="'rent'"):
        labelled_rows(table.drop_columns(["rent"]), rent)
    with pytest.raises(TableError, match=r"'size', row 1.*large"):
        labelled_rows(_replaced(table, "size", ["large"] * 30), rent)
    with pytest.raises(TableError, match=r"'lift', row 1"):
        labelled_rows(_replaced(table, "lift", [7.5] * 30), rent)
    with pytest.raises(TableError, match=r"'district'.*'east'.*numeric"):
        labelled_rows(_replaced(table, "district", [float(number) for number in range(30)]), rent)
    with pytest.raises(TableError, match="no row has a value"):
        labelled_rows(_replaced(table, "rent", [None] * 30).cast(table.schema), rent)


def test_a_missing_cell_where_training_had_none_is_refused_by_row(rent: Posterior) -> None:
    table = make_table(rows=30, seed=9)
    lifts = table.column("lift").to_pylist()
    lifts[6] = None
    with pytest.raises(TableError, match=r"'lift', row 7"):
        labelled_rows(_replaced(table, "lift", lifts), rent)


def test_categories_that_are_numbers_stay_categories(rent: Posterior) -> None:
    """Codes in place of names are refused; new texts are accepted, even if all are unseen."""
    table = make_table(rows=30, seed=9)
    rows = labelled_rows(_replaced(table, "district", ["south", "centre", "harbour"] * 10), rent)
    assert rows.outside["district"] == 30


def test_a_target_that_the_transform_can_not_take_is_refused_by_row(rent: Posterior) -> None:
    target = replace(rent.spec.target, transform=Logarithm(shift=0.0, top=7.0))
    logarithmic = Posterior(replace(rent.spec, target=target), rent.tensors)
    table = make_table(rows=30, seed=9)
    assert len(labelled_rows(table, logarithmic)) == 30
    values = table.column("rent").to_numpy().copy()
    values[11] = -5.0
    with pytest.raises(TableError, match=r"row 12: the target -5 .*'log'"):
        labelled_rows(_replaced(table, "rent", values), logarithmic)


def test_new_rows_with_the_same_features_are_one_unit(rent: Posterior) -> None:
    table = make_table(rows=30)
    rows = labelled_rows(pa.concat_tables([table, table]), rent)
    assert rows.units.count == 30
    assert not rows.units.grouped


def test_new_rows_are_grouped_as_in_the_training_if_the_table_says_how(rent_checkpoints: Path) -> None:
    revision = Revision.read(rent_checkpoints / "rent" / "1")
    training = revision.spec.training
    options = {**training["options"], "group": ["house"]}
    grouped = Posterior(replace(revision.spec, training={**training, "options": options}), revision.tensors)
    table = make_table(rows=30)
    assert not labelled_rows(table, grouped).units.grouped
    rows = labelled_rows(table.append_column("house", pa.array(np.arange(30) // 5)), grouped)
    assert rows.units.grouped
    assert rows.units.count == 6
