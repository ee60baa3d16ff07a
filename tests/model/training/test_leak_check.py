"""Which features may leak the target: copies, sums, what alone tells it, and names."""

from typing import Any

import numpy as np
import pytest

from murho.model.tables.data_report import leak_sentences
from murho.model.tables.schema import FeatureKind
from murho.model.training.leak_check import leak_suspects
from tests.model.conftest import schema_of_kinds

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
    found = leak_suspects(columns, schema_of_kinds(target, **kinds), TARGETS)
    return {suspect.column: next(leak_sentences([suspect])) for suspect in found}


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (TARGETS, "is the target, maybe in another unit"),
        (np.where(np.arange(N) == 7, 0.0, TARGETS), "equals the target in 99.75 % of the rows that have it"),
        (np.log(TARGETS) * 3.0, "alone tells 99."),
        (TARGETS + 1e-3 * GENERATOR.normal(size=N), "alone tells 99."),
        (np.where(np.arange(N) % 3 == 0, np.nan, TARGETS), "equals the target in 100 % of the rows that have it"),
    ],
)
def test_a_feature_that_tells_the_target_is_named(column: Any, reason: str) -> None:
    found = suspects(c=column)
    assert list(found) == ["c"]
    assert reason in found["c"]
    assert "if it is not known when the target is asked for, give --ignore c" in found["c"]


def test_columns_that_add_up_to_the_target_are_named() -> None:
    casual, registered = TARGETS * 0.3 + OTHER**2, TARGETS * 0.7 - OTHER**2
    missing = np.where(np.arange(N) % 9 == 0, np.nan, registered)
    for parts in ({"casual": casual, "registered": registered}, {"casual": casual, "registered": missing}):
        found = suspects(**parts)
        assert set(found) == {"casual", "registered"}
        assert "'casual' is one of 2 columns that together tell the target exactly" in found["casual"]
    hours: dict[str, Any] = {f"h{hour}": np.abs(GENERATOR.normal(size=N)) for hour in range(23)}
    assert "one of 24 columns" in suspects(last=TARGETS - sum(hours.values()), **hours)["h7"]
    assert set(suspects(casual=casual, registered=registered + 0.05 * hours["h0"])) == set()


def test_a_rounded_sum_is_named_and_columns_of_one_reason_have_one_sentence() -> None:
    halves = {"one": GENERATOR.normal(5.0, 2.0, N).round(2), "two": GENERATOR.normal(5.0, 2.0, N).round(2)}
    kinds = dict.fromkeys((*halves, "other"), FeatureKind.NUMERIC)
    mean = ((halves["one"] + halves["two"]) / 2).round(2)
    found = leak_suspects({**halves, "other": OTHER}, schema_of_kinds("y", **kinds), mean)
    assert list(leak_sentences(found)) == [
        "'one', 'two': each is one of 2 columns that together tell the target but for its last digit: if they are not "
        "known when the target is asked for, give --ignore one --ignore two"
    ]


def test_columns_of_which_some_add_up_to_others_are_not_said_to_add_up_to_the_target() -> None:
    one, two, three = TARGETS * 0.3 + OTHER**2, TARGETS * 0.5, TARGETS * 0.2 - OTHER**2
    found = suspects(one=one, two=two, three=three, both=one + two)
    assert set(found) == {"one", "two", "three", "both"}  # with all four the target would be there almost twice
    assert all("together tell the target exactly" in reason for reason in found.values())


def test_honest_features_are_no_suspects() -> None:
    noisy = TARGETS + 0.2 * TARGETS.std() * GENERATOR.normal(size=N)
    assert (
        suspects(noisy=noisy, rank_of_row=np.arange(N, dtype=float), constant=np.full(N, 0.3), huge=1e300 * OTHER) == {}
    )
    assert leak_suspects({"only": TARGETS**2}, schema_of_kinds("y", only=FeatureKind.NUMERIC), TARGETS) == []


@pytest.mark.parametrize(
    ("name", "target", "suspected"),
    [
        ("final_outcome", "sales", True),
        ("predictedSales", "sales", True),
        ("SalesPerDay", "sales", True),
        ("sales_lag_1", "sales", False),
        ("salesman", "sales", False),
        ("y_position", "y", False),
    ],
)
def test_names_alone_may_be_suspicious(name: str, target: str, suspected: bool) -> None:
    assert (name in suspects(target, **{name: GENERATOR.normal(size=N)})) is suspected


def test_time_is_no_suspect() -> None:
    days = np.sort(GENERATOR.uniform(size=N))
    columns = {"day": days, "year": 1950.0 + days, "other": OTHER}
    kinds = {"day": FeatureKind.DATE, "year": FeatureKind.NUMERIC, "other": FeatureKind.NUMERIC}
    assert leak_suspects(columns, schema_of_kinds("y", **kinds), np.sin(6.0 * days)) == []
