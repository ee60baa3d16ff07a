"""The tables of the accuracy benchmarks: their splits are the ones that published numbers are of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.datasets import SETS, TABULAR, UCI, DataSet, read_set, splits
from murho.model.errors import OptionError

if TYPE_CHECKING:
    from pathlib import Path

SMALL = DataSet("small", "tabular/small.csv", 3, "y", "the moon")


def test_standard_splits_begin_with_the_known_rows() -> None:
    # np.random.seed(1), then np.random.choice(range(n), n, replace=False) for each split.
    first, second, *_ = splits(UCI["yacht"], 308, 20)
    assert first.training[:6].tolist() == [73, 304, 228, 238, 259, 164]
    assert first.test[-3:].tolist() == [72, 235, 37]
    assert second.training[:6].tolist() == [162, 101, 114, 20, 23, 182]
    assert splits(UCI["energy"], 768, 1)[0].training[:6].tolist() == [285, 101, 581, 352, 726, 472]


def test_other_splits_begin_with_the_known_rows() -> None:
    made = splits(TABULAR["autompg"], 398, 5)
    assert made[0].training[:6].tolist() == [133, 202, 292, 88, 55, 36]
    assert made[4].training[:6].tolist() == [203, 107, 264, 3, 41, 215]


@pytest.mark.parametrize("name", SETS)
def test_each_row_is_in_one_part_of_every_split(name: str) -> None:
    dataset = SETS[name]
    made = splits(dataset, dataset.rows, 3)
    assert len(made) == 3
    share = 0.9 if dataset.standard else 0.8
    for split in made:
        assert np.array_equal(np.sort(np.concatenate([split.training, split.test])), np.arange(dataset.rows))
        assert abs(len(split.training) - share * dataset.rows) < 1.0


def test_a_missing_table_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"yacht\.csv does not exist.*archive\.ics\.uci\.edu/dataset/243"):
        read_set(UCI["yacht"], tmp_path)


def test_another_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tabular").mkdir()
    path = tmp_path / SMALL.file
    path.write_text("x,y\n1,2\n3,4\n", encoding="utf-8")
    with pytest.raises(OptionError, match="must have 3 rows"):
        read_set(SMALL, tmp_path)
    path.write_text("x,z\n1,2\n3,4\n5,6\n", encoding="utf-8")
    with pytest.raises(OptionError, match="the column 'y'; it has 3 and x, z"):
        read_set(SMALL, tmp_path)
    path.write_text("x,y\n1,2\n3,4\n5,6\n", encoding="utf-8")
    assert read_set(SMALL, tmp_path).num_rows == 3
