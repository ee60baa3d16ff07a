from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sqlalchemy import text

from murho.model.errors import OptionError
from murho.model.evaluation.recorded import LEVELS
from murho.service.outcomes.groups import FeatureFacts
from murho.service.outcomes.quality import QualityQuery, quality_of
from murho.service.outcomes.schema import writing
from murho.service.outcomes.store import Batch, Store, VersionFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SCORES = np.array([-3.09, -2.576, -2.326, -1.96, -1.645, -1.282, -1.036, -0.842, -0.674, -0.524, -0.253])
GRID = np.concatenate([SCORES, [0.0], -SCORES[::-1]]).astype(np.float32)
FEATURE = FeatureFacts("Origin", date=False, categories=("EU", "USA"), edges=(), groups=())
NUMBER, CLASSES = VersionFacts("y", None, (FEATURE,), 100), VersionFacts("y", ("no", "yes"), ())


def batch(ids: Sequence[str], *, version: str = "1", at: float | None = None, means: float = 10.0) -> Batch:
    """Predictions N(mean, 1) that come from EU and USA in turn."""
    inputs = [json.dumps({"Origin": ("EU", "USA")[place % 2]}) for place in range(len(ids))]
    answers = np.tile(GRID, (len(ids), 1)).tobytes()
    at = time.time() if at is None else at
    return Batch("m", version, at, list(ids), np.full(len(ids), means).tobytes(), answers, inputs, facts=NUMBER)


def quality(store: Store, **asked: Any) -> dict[str, Any]:
    return quality_of(store, "m", store.facts("m"), QualityQuery(**asked))


def test_outcomes_count_once_and_a_later_value_revises(store: Store) -> None:
    assert len(LEVELS) == len(GRID)
    store.record([batch(["a", "b", "c"])])
    found = store.add("m", ["b", "nowhere", "a", "b"], [11.0, 1.0, 12.0, 13.0])  # of equal ids the last holds
    assert (found.accepted, found.revised) == (2, 0)
    assert [(each.place, each.id) for each in found.unknown] == [(1, "nowhere")]
    before = quality(store)["versions"]
    assert before[0]["n"] == 2
    assert before[0]["bias"] == pytest.approx(-2.5)
    assert store.add("m", ["a", "b"], [12.0, 13.0]).revised == 0  # again: nothing changes
    assert quality(store)["versions"] == before
    assert store.add("m", ["c", "a"], [10.5, 10.5]).revised == 1
    (now,) = quality(store)["versions"]
    assert now["n"] == 3
    assert now["bias"] == pytest.approx(-(0.5 + 3.0 + 0.5) / 3)
    assert sum(now["pit"]) == 3
    assert now["alarm"]["outcomes"] == 3  # revisions are no news
    assert [pair.value for pair in store.pairs("m")] == [13.0, 10.5, 10.5]
    store.record([batch(["a", "d"], means=50.0)])  # an id with an outcome keeps its prediction
    assert {each.id: each.mean for each in store.predictions("m", ["a", "d"])} == {"a": 10.0, "d": 50.0}


def test_quality_of_windows_versions_and_groups(store: Store) -> None:
    rows, values = 400, np.random.default_rng(0)
    ids = [str(row) for row in range(rows)]
    store.record([batch(ids, at=time.time() - 3 * 86400), batch([f"n{key}" for key in ids], version="2")])
    right = values.normal(10.0, 1.0, rows)
    wrong = np.where(np.arange(rows) % 2 == 1, right + 2.0, right)  # in the USA
    store.add("m", [*ids, *(f"n{key}" for key in ids)], [*right.tolist(), *wrong.tolist()])
    first, second = quality(store, by="Origin", coverage=0.98)["versions"]
    inside = float((np.abs(right - 10.0) <= 1.645).mean())
    assert first["coverage"]["90"]["share"] == pytest.approx(inside, abs=0.005)
    assert first["coverage"]["90"]["low"] < inside < first["coverage"]["90"]["high"]
    assert first["coverage"]["98"]["share"] == pytest.approx(float((np.abs(right - 10.0) <= 2.326).mean()), abs=0.005)
    assert first["width"]["90"] == pytest.approx(3.29, abs=0.01)
    assert first["crps"] == pytest.approx(0.5642, abs=0.05)
    assert not first["alarm"]["raised"]
    assert second["alarm"]["raised"]
    assert second["alarm"]["since"] <= second["alarm"]["at"]
    europe, usa = second["groups"]
    assert (europe["group"], usa["group"], usa["n"]) == ("EU", "USA", rows // 2)
    assert europe["coverage"]["90"]["share"] > 0.8 > usa["coverage"]["90"]["share"]
    assert usa["bias"] == pytest.approx(-2.0, abs=0.2)
    (latest,) = quality(store, hours=24)["versions"]
    assert latest["version"] == "2"
    assert [each["n"] for each in first["history"]] == [rows]


def test_quality_of_classes(store: Store) -> None:
    answers = np.array([[0.9, 0.1, 1, 0], [0.2, 0.8, 1, 1], [0.3, 0.7, 0, 1], [0.6, 0.4, 1, 0]], np.float32)
    store.record([Batch("m", "1", time.time(), list("abcd"), b"", answers.tobytes(), facts=CLASSES)])
    found = store.add("m", [*"abcd"], ["no", "yes", "no", "maybe"])
    assert found.accepted == 3
    assert "is none" in found.unknown[0].why
    (told,) = quality(store)["versions"]
    assert told["accuracy"]["share"] == pytest.approx(2 / 3)
    assert told["log_loss"] == pytest.approx(-np.log([0.9, 0.8, 0.3]).mean())
    assert told["sets"]["coverage"]["share"] == pytest.approx(2 / 3)
    assert told["sets"]["size"] == pytest.approx(4 / 3)
    assert told["ece"] == pytest.approx((0.1 + 0.2 + 0.7) / 3)


def test_workers_that_get_the_same_outcomes_count_them_once(opened: Callable[[], Store]) -> None:
    ids = [str(number) for number in range(300)]
    first = opened()
    first.record([batch(ids)])
    stores = [first, opened(), opened()]
    with ThreadPoolExecutor(3) as threads:
        done = list(threads.map(lambda store: store.add("m", ids, [10.0] * len(ids)).accepted, stores))
    assert done == [300, 300, 300]
    (told,) = quality(first)["versions"]
    assert (told["n"], told["alarm"]["outcomes"]) == (300, 300)


def test_retention_and_forgetting(store: Store) -> None:
    now = time.time()
    for day in range(40):
        store.record([batch([f"{day}-{row}" for row in range(50)], at=now - day * 86400)])
    store.add("m", ["0-0", "0-1", "39-0"], [1.0, 2.0, 3.0])
    store.add("m", ["0-0"], [4.0])
    assert store.forget("m", ["0-0", "other"]) == 1
    assert store.clean(now - 20.5 * 86400) == 19 * 50
    assert [pair.prediction.id for pair in store.pairs("m")] == ["0-1"]
    assert quality(store, hours=2000)["versions"][0]["n"] == 3  # sums stay
    with writing(store.engine) as connection:
        assert connection.scalar(text("SELECT count(*) FROM revisions")) == 0
    if store.url.drivername == "sqlite":  # PostgreSQL counts its rows a while later
        most = store.size() - 50_000
        assert store.clean(most_bytes=most) > 0
        assert store.size() <= most
        assert store.predictions("m", ["0-1"])  # the oldest have gone


def test_a_store_that_cannot_be_used_is_refused(opened: Callable[[], Store]) -> None:
    store = opened()
    with writing(store.engine) as connection:
        connection.execute(text("UPDATE murho_store SET format = 99"))
    with pytest.raises(OptionError, match="made by a newer Murho"):
        opened()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("/nowhere/at/all.db", "can't be opened"),
        ("mysql://me:secret@host/db", "neither a file nor an address"),
        ("postgresql://me:secret@127.0.0.1:1/db", "can't be opened"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(address: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as error:
        Store(address)
    assert "secret" not in str(error.value)
