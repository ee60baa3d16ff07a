from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from murho.model.tables.data_report import leak_suspects, share_told
from murho.model.tables.schema import FeatureKind

N = 400
GENERATOR = np.random.default_rng(0)
TARGETS = np.exp(GENERATOR.normal(size=N))
OTHER = GENERATOR.normal(size=N)


def suspects(target: str = "y", **columns: Any) -> dict[str, str]:
    columns = {"other": OTHER, **columns}
    kinds = {
        name: FeatureKind.CATEGORICAL if column.dtype == object else FeatureKind.NUMERIC
        for name, column in columns.items()
    }
    return {suspect.column: suspect.message for suspect in leak_suspects(columns, kinds, target, TARGETS)}


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (TARGETS, "equals the target in every row"),
        (np.where(np.arange(N) == 7, 0.0, TARGETS), "equals the target in 99.8 % of the rows"),
        (TARGETS * 2.0 - 3.0, "is the target in another unit"),
        (np.log(TARGETS) * 3.0, "alone tells 99."),
        (TARGETS + 1e-3 * OTHER, "alone tells 99."),
        (np.where(np.arange(N) % 3 == 0, np.nan, TARGETS), "equals the target in every row"),
    ],
)
def test_a_feature_that_tells_the_target_is_named(column: Any, reason: str) -> None:
    found = suspects(c=column)
    assert list(found) == ["c"]
    assert reason in found["c"]
    assert "if it is not known when the target is asked for, give --ignore c" in found["c"]


def test_a_category_that_tells_the_target_is_named() -> None:
    codes = np.array([f"k{rank // 4}" for rank in np.argsort(np.argsort(TARGETS))], dtype=object)
    assert "alone tells" in suspects(c=codes)["c"]
    assert suspects(c=np.array([f"k{row}" for row in range(N)], dtype=object)) == {}


def test_columns_that_add_up_to_the_target_are_named() -> None:
    found = suspects(casual=TARGETS * 0.3 + OTHER**2, registered=TARGETS * 0.7 - OTHER**2)
    assert found["casual"].startswith("'casual' and 'registered' add up to the target exactly")
    assert set(found) == {"casual", "registered"}


def test_honest_features_are_no_suspects() -> None:
    noisy = TARGETS + 0.2 * TARGETS.std() * GENERATOR.normal(size=N)
    assert suspects(noisy=noisy, rank_of_row=np.arange(N, dtype=float), constant=np.zeros(N)) == {}
    assert leak_suspects({"only": TARGETS**2}, {"only": FeatureKind.NUMERIC}, "y", TARGETS) == []


@pytest.mark.parametrize(
    ("name", "target", "suspected"),
    [
        ("final_outcome", "sales", True),
        ("predictedSales", "sales", True),
        ("log_sales", "sales", True),
        ("SalesPerDay", "sales", True),
        ("sales_lag_1", "sales", False),
        ("previous_sales", "sales", False),
        ("salesman", "sales", False),
        ("residual_sugar", "quality", False),
        ("postcode", "price", False),
        ("y_position", "y", False),
    ],
)
def test_names_alone_may_be_suspicious(name: str, target: str, suspected: bool) -> None:
    assert (name in suspects(target, **{name: GENERATOR.normal(size=N)})) is suspected


def test_time_is_no_suspect() -> None:
    days = np.sort(GENERATOR.uniform(size=N))
    columns = {"day": days, "year": 1950.0 + days, "other": OTHER}
    kinds = {"day": FeatureKind.DATE, "year": FeatureKind.NUMERIC, "other": FeatureKind.NUMERIC}
    assert leak_suspects(columns, kinds, "y", np.sin(6.0 * days)) == []


def test_few_rows_are_suspected_by_name_alone() -> None:
    columns = {"c": TARGETS[:20], "actual": OTHER[:20]}
    found = leak_suspects(columns, dict.fromkeys(columns, FeatureKind.NUMERIC), "y", TARGETS[:20])
    assert [suspect.column for suspect in found] == ["actual"]


def test_the_share_told_is_that_of_a_smooth_relation() -> None:
    """A line with noise of a tenth of its variance: neighbours' means add half of the noise."""
    x = np.sort(GENERATOR.uniform(size=4000))
    y = x * np.sqrt(12.0) + np.sqrt(0.1) * GENERATOR.normal(size=4000)
    assert share_told(x, y, ordered=True) == pytest.approx(1.0 - 0.15 / 1.1, abs=0.02)
    assert share_told(GENERATOR.permutation(x), y, ordered=True) < 0.0
