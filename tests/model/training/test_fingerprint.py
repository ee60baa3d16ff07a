"""The fingerprint is the same for the same training, and differences are listed."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from murho.model.training.fingerprint import changes, differences, make_fingerprint
from murho.model.training.options import make_options

SIZE, DISTRICT = np.array([1.0, np.nan, 3.0]), np.array(["east", None, "wöst"], dtype=object)
TARGETS = np.array([10.0, 20.0, 30.0])


def _fingerprint(
    size: Any = SIZE, targets: Any = TARGETS, target: str = "rent", device: str = "cpu", **options: object
) -> dict[str, Any]:
    columns = {"size": size, "district": DISTRICT[: len(targets)]}
    made = make_fingerprint(columns, targets, target, make_options(options), device)
    stored: dict[str, Any] = orjson.loads(orjson.dumps(made))
    return stored


def test_the_same_training_has_the_same_fingerprint() -> None:
    then = _fingerprint(hidden=(8,), columns={"size": {"unit": "m2"}})
    # A missing number is the same, whatever bits its NaN has.
    other_nan = np.array([1.0, -np.nan, 3.0])
    assert other_nan.tobytes() != SIZE.tobytes()
    now = _fingerprint(size=other_nan, hidden=(8,), columns={"size": {"unit": "m2"}}, device="cpu")
    assert differences(then, now) == []
    assert changes(then, now) == {}
    assert differences(_fingerprint(device="cuda:0"), _fingerprint(device="cuda:1")) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"size": np.array([1.0, np.nan, 3.0000001])}, "column 'size' has other values"),
        ({"size": np.array([3.0, np.nan, 1.0])}, "column 'size' has other values"),
        ({"targets": np.array([10.0, 20.0, 31.0])}, "the target 'rent' has other values"),
        ({"target": "price"}, "the target was 'rent', is 'price'"),
        ({"seed": 4}, "--seed was 0, is 4"),
        ({"hidden": (8,)}, "--hidden was null, is [8]"),
        ({"device": "cuda"}, "--device was cpu, is cuda"),
    ],
)
def test_what_differs_is_said(change: dict[str, Any], said: str) -> None:
    assert differences(_fingerprint(), _fingerprint(**change)) == [said]


def test_another_number_of_rows_is_said_once() -> None:
    fewer = _fingerprint(size=SIZE[:2], targets=TARGETS[:2])
    assert differences(_fingerprint(), fewer) == ["the table had 3 rows with a target, has 2"]


def test_columns_that_come_go_and_move_are_said() -> None:
    then, now = _fingerprint(), _fingerprint()
    now["columns"]["lift"] = now["columns"].pop("size")
    assert differences(then, now) == ["column 'size' is no feature any more", "column 'lift' was no feature"]
    moved = _fingerprint()
    moved["columns"] = dict(reversed(moved["columns"].items()))
    assert differences(then, moved) == ["the columns come in another order"]


@pytest.mark.parametrize("name", ["murho", "torch"])
def test_other_versions_are_said(name: str) -> None:
    assert differences(_fingerprint() | {name: "0.0.1"}, _fingerprint())[0].startswith(f"{name} was 0.0.1, is ")


def test_learning_rate_and_budget_may_change() -> None:
    then, now = _fingerprint(), _fingerprint(learning_rate=0.001, budget=60)
    assert differences(then, now) == []
    assert changes(then, now) == {
        "budget": "--budget was null, is 60.0",
        "learning_rate": "--learning-rate was 0.01, is 0.001",
    }
