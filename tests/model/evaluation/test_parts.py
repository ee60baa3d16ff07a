"""Coverage by predicted std and by category."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from murho.model.evaluation.numbers import spearman
from murho.model.evaluation.rows import RowWeights, scores_by_category
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from tests.model.judged_rows import judged_rows

small_whole = arrays(np.int64, 30, elements=st.integers(0, 8))


@given(small_whole, small_whole)
def test_rank_correlation_is_scipys_with_ties(first: np.ndarray, second: np.ndarray) -> None:
    ours = spearman(first.astype(float), second.astype(float))
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert ours is None
    else:
        assert ours == pytest.approx(stats.spearmanr(first, second).statistic, abs=1e-12)


def coverage_by_std(errors: np.ndarray, stds: np.ndarray, inside: np.ndarray) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = judged_rows(errors, stds, inside).in_full(schema(), {})["coverage_by_std"]
    return found


def test_the_surest_rows_come_first_and_show_where_bands_fail() -> None:
    """Forty rows: the ten of smallest std are never inside, the others always."""
    stds = np.linspace(4.0, 0.1, 40)
    groups = coverage_by_std(2.0 * stds, stds, stds > 1.05)
    assert [group["rows"] for group in groups] == [4] * 10
    assert [group["raw"] for group in groups] == [0.0, 0.0, 0.5, *[1.0] * 7]
    assert groups[0]["std"] == [pytest.approx(0.1), pytest.approx(0.4)]
    assert groups[-1]["rmse"] == pytest.approx(2.0 * np.sqrt(np.mean(np.sort(stds)[-4:] ** 2)))
    assert "calibrated" not in groups[0]


@given(st.integers(1, 130), st.integers(0, 2**32))
def test_groups_by_std_are_equal_and_whole(count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    stds, inside = generator.integers(1, 9, count).astype(float), generator.random(count) < 0.8
    groups = coverage_by_std(np.ones(count), stds, inside)
    sizes = [group["rows"] for group in groups]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    assert len(groups) == min(10, count)
    assert sum(group["rows"] * group["raw"] for group in groups) == pytest.approx(inside.sum())
    ends = [end for group in groups for end in group["std"]]
    assert ends == sorted(ends)


def schema(*features: tuple[str, FeatureKind]) -> Schema:
    columns = tuple(Feature(name, kind, None, True, None, None, ()) for name, kind in features)
    return Schema(columns, Target("y", None), {})


def test_small_categories_are_put_together_and_missing_cells_stand_alone() -> None:
    cells = np.array(["a"] * 25 + ["b"] * 30 + ["c"] * 19 + ["never seen"] + [None] * 5, dtype=object)
    inside = np.array([cell in ("b", "c") for cell in cells])
    groups = scores_by_category(
        {"raw": inside},
        RowWeights.of(80),
        schema(("kind", FeatureKind.CATEGORICAL)),
        {"kind": cells},
    )["kind"]
    assert groups == [
        {"category": "b", "rows": 30, "raw": 1.0},
        {"category": "a", "rows": 25, "raw": 0.0},
        {"category": None, "rows": 5, "raw": 0.0},
        {"category": None, "merged": 2, "rows": 20, "raw": 0.95},
    ]


def test_a_single_small_category_keeps_its_name() -> None:
    cells = np.array(["a"] * 25 + ["b"] * 3, dtype=object)
    groups = scores_by_category(
        {"raw": np.ones(28, dtype=bool)},
        RowWeights.of(28),
        schema(("kind", FeatureKind.CATEGORICAL)),
        {"kind": cells},
    )["kind"]
    assert [group["category"] for group in groups] == ["a", "b"]


def test_booleans_are_categories_and_numbers_are_not() -> None:
    columns = {"lift": np.array([1.0, 0.0, np.nan] * 20), "size": np.arange(60.0)}
    report = scores_by_category(
        {"raw": columns["lift"] == 1.0},
        RowWeights.of(60),
        schema(("lift", FeatureKind.BOOLEAN), ("size", FeatureKind.NUMERIC)),
        columns,
    )
    assert list(report) == ["lift"]
    assert {group["category"]: group["raw"] for group in report["lift"]} == {True: 1.0, False: 0.0, None: 0.0}
    assert all(group["category"] is None or isinstance(group["category"], bool) for group in report["lift"])
