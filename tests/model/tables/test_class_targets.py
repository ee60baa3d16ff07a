"""Which targets are classes, which classes they have, and what is said of targets that can't be used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from murho.model.errors import TableError
from murho.model.tables.schema import Target
from murho.model.tables.schema_inference import class_codes, classes_of, holds_classes, labels_from_table, read_targets


def table(cells: Any) -> pa.Table:
    return pa.table({"y": cells})


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        (["yes", "no", "yes"], True),
        ([True, False, None], True),
        (["true", "false", "TRUE"], True),
        (["1", "2.5", "3"], False),
        ([1, 2, 3], False),
        ([0.0, 1.0, 1.0], False),
        (["2020-01-01", "2020-01-02", "2020-01-03"], False),
    ],
)
def test_text_and_truth_values_are_classes_and_numbers_are_not(cells: list[Any], classes: bool) -> None:
    assert holds_classes(table(cells), "y") is classes


def test_labels_are_canonical_and_classes_sorted() -> None:
    labels = labels_from_table(table([" b", "a", None, "b", ""]), "y")
    assert labels.tolist() == ["b", "a", None, "b", None]
    assert classes_of(labels, "y") == ("a", "b")
    codes = class_codes(labels, ("a", "b"))
    assert codes[[0, 1, 3]].tolist() == [1.0, 0.0, 1.0]
    assert np.isnan(codes[[2, 4]]).all()


def test_numbers_as_classes_have_one_name_however_written() -> None:
    assert classes_of(labels_from_table(table([1.0, 2.0, 10.0]), "y"), "y") == ("1", "10", "2")
    assert classes_of(labels_from_table(table([True, False]), "y"), "y") == ("false", "true")


def test_targets_without_two_classes_or_with_too_many_are_refused() -> None:
    with pytest.raises(TableError, match="'a' in every row"):
        classes_of(labels_from_table(table(["a", "a", None]), "y"), "y")
    with pytest.raises(TableError, match="missing in every row"):
        classes_of(labels_from_table(table(["", None]), "y"), "y")
    with pytest.raises(TableError, match=r"1,001 different values .* at most 1,000"):
        classes_of(labels_from_table(table([f"name {number}" for number in range(1001)]), "y"), "y")


def test_an_unknown_class_is_named_with_its_row() -> None:
    with pytest.raises(TableError, match=r"row 2: 'c' is none of the 2 classes .*'a', 'b'"):
        read_targets(table(["a", "c"]), Target("y", None, ("a", "b")))
