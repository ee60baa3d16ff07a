"""Judged rows: known values for Gaussians, independent of chunks and of the order of parts."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from murho.model.checkpoint.posterior import Posterior
from murho.model.encoding.encoder import Encoded
from murho.model.errors import OptionError, TableError
from murho.model.evaluation.judging import evaluate_table, judge_columns, judge_encoded
from murho.model.tables.schema_inference import columns_from_table, target_from_table
from tests.model.conftest import make_table
from tests.model.rooms import CLASSES, rooms_table
from tests.support import ROOT


def test_without_draws_there_is_nothing_to_judge(rent: Posterior) -> None:
    rows = Encoded.like(np.zeros((1, rent.architecture.inputs), dtype=np.float32))
    with pytest.raises(OptionError, match="draw"):
        judge_encoded(rent, rows, np.zeros(1), samples=0)


@pytest.fixture(scope="module")
def report(rent: Posterior) -> dict[str, Any]:
    return evaluate_table(rent, make_table(rows=200, seed=5))


def test_the_page_on_evaluation_explains_every_key(report: dict[str, Any], rooms: Posterior) -> None:
    def keys(value: object) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(keys, value))
        if not isinstance(value, dict):
            return set()
        return set(value) | keys(list(value.values()))

    page = (ROOT / "docs" / "evaluation.md").read_text()
    data = {"50", "80", "90", "95", "100", "5", "district", "lift", *CLASSES}  # levels, and what the table brings
    of_classes = evaluate_table(rooms, rooms_table(rows=60, seed=5)) | {"unknown": {"rows": 1, "accuracy": 1.0}}
    named = (keys(report) | keys(of_classes)) - data - {"left_out"}
    assert len(named) >= 40
    assert sorted(key for key in named if f"`{key}`" not in page) == []


def test_groups_and_bands_tell_the_same_coverage(report: dict[str, Any]) -> None:
    by_category = report["coverage_by_category"]
    assert set(by_category) == {"district", "lift"}
    for groups in (report["coverage_by_std"], *by_category.values()):
        for kind in ("raw", "calibrated"):
            inside = sum(group["rows"] * group[kind] for group in groups)
            assert inside / 200.0 == pytest.approx(report[kind]["coverage"]["90"])


def test_rows_without_a_target_are_left_out_and_counted(rent: Posterior) -> None:
    table = make_table(rows=12, seed=6)
    targets = table.column("rent").to_numpy().copy()
    targets[[2, 7]] = np.nan
    gaps = table.set_column(table.column_names.index("rent"), "rent", [targets])
    report = evaluate_table(rent, gaps, samples=8)
    assert (report["n"], report["left_out"]) == (10, 2)
    with pytest.raises(TableError, match="nothing to judge by"):
        evaluate_table(rent, gaps.take([2, 7]))


def test_one_row_is_judged_as_far_as_it_goes(rent: Posterior) -> None:
    table = make_table(rows=1, seed=6)
    columns = columns_from_table(table, rent.schema)
    report = judge_columns(rent, columns, target_from_table(table, "rent"), samples=8).in_full(rent.schema, columns)
    assert report["n"] == 1
    assert report["r2"] is None
    assert report["spearman"] is None
    assert len(report["coverage_by_std"]) == 1


def test_a_column_of_weights_makes_weighted_means_and_leaves_out_rows_of_weight_zero(rent: Posterior) -> None:
    table = make_table(rows=60, seed=5)
    counts = np.arange(60) % 3
    weighted = evaluate_table(rent, table.append_column("w", pa.array(counts)), weight="w")
    repeated = evaluate_table(rent, table.take(np.repeat(np.arange(60), counts)))
    assert (weighted["n"], weighted["left_out"]) == (40, 20)
    for key in ("rmse", "mae", "r2", "nll", "crps", "sharpness", "epistemic_share"):
        assert weighted[key] == pytest.approx(repeated[key], rel=1e-6), key
    for kind in ("raw", "calibrated"):
        for key in ("coverage", "width", "interval_score"):
            assert weighted[kind][key] == pytest.approx(repeated[kind][key], rel=1e-6), key
        for name, found in weighted[kind]["reliability"].items():
            assert found == pytest.approx(repeated[kind]["reliability"][name])
