"""The tasks of the benchmarks of tables: what is learned from, and what is asked."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import co2, dependent, shift, uci
from benchmarks.datasets import UCI
from murho.model.training.options import make_options

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", list(dependent.TABLES))
def test_a_dependent_table_has_fresh_rows_and_options_that_are_valid(name: str) -> None:
    task = dependent.task(name, 0, told=True)
    assert task.training.column_names == task.test.column_names
    assert task.training.num_rows >= 600
    assert task.test.num_rows >= 2_000
    make_options(dict(task.options))
    plain = dependent.task(name, 0, told=False)
    assert plain.training.equals(task.training)
    assert set(plain.options["ignore"]) <= set(task.training.column_names)


def test_copies_are_copies_groups_are_new_and_later_rows_come_later() -> None:
    four = dependent.task("four times", 0, told=False).training
    assert len(set(four["x0"].to_pylist())) == four.num_rows / 4
    for name, column in (("groups", "plot"), ("patients", "patient")):
        task = dependent.task(name, 0, told=True)
        assert not set(task.training[column].to_pylist()) & set(task.test[column].to_pylist())
    task = dependent.task("AR(1)", 0, told=True)
    assert max(task.training["day"].to_pylist()) < min(task.test["day"].to_pylist())


def test_no_feature_of_co2_is_made_from_the_series_itself() -> None:
    dates = [f"{year}-{month:02d}" for year in range(2009, 2013) for month in range(1, 13)]
    decimal = [f"{2009.0 + (index + 0.5) / 12.0:.4f}" for index in range(48)]
    values = [f"{380.0 + 0.2 * index:.2f}" for index in range(48)]
    read = pa.table({"date": dates, "decimal_date": decimal, "average_ppm": values, "deseasonalized_ppm": values})
    features = {kind: co2.features_of(read, kind)[0].column_names[:-1] for kind in co2.FEATURES}
    assert features == {"month": ["decimal_date", "month"], "date": ["date"]}


def test_gap_is_the_middle_third_and_tail_the_outer_sixths() -> None:
    feature = np.random.default_rng(0).permutation(12).astype(np.float64)
    rows = np.arange(100, 112)
    made = shift.shifted_splits(feature, rows)
    by_row = dict(zip(rows.tolist(), feature.tolist(), strict=True))
    assert sorted(by_row[row] for row in made["gap"].test.tolist()) == [4, 5, 6, 7]
    assert sorted(by_row[row] for row in made["tail"].test.tolist()) == [0, 1, 10, 11]
    for split in made.values():
        assert sorted([*split.training.tolist(), *split.test.tolist()]) == rows.tolist()


def test_the_protocol_has_its_network_and_members_have_fits_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uci, "read_set", lambda dataset, _: SimpleNamespace(num_rows=dataset.rows))
    options = Namespace(
        sets=["protein", "yacht"], network="protocol", splits=2, members=None, budget=None, data=tmp_path
    )
    jobs = uci.jobs_of(options)
    assert [job.name for job in jobs] == [
        *("protein-00-protocol", "protein-01-protocol", "yacht-00-protocol", "yacht-01-protocol")
    ]
    assert jobs[0].arguments[-1]["hidden"] == [100]
    assert jobs[2].arguments[-1] == {"hidden": [50], "activation": "relu", "skip": False}
    options.members, options.network, options.splits = 1, "defaults", None
    jobs = uci.jobs_of(options)
    assert jobs[0].name == "protein-00-defaults-members=1"
    assert jobs[0].arguments[-1] == {"members": 1}
    assert len(jobs) == 5 + 20
    assert {line.partition(" ")[0] for line in uci.PUBLISHED} == set(UCI)
