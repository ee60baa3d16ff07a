"""The store, in SQLite and PostgreSQL: whatever happens in whatever order, what it tells is a recount of what is so."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from murho.model.errors import OptionError
from murho.model.evaluation.recorded import LEVELS
from murho.service.outcomes import schema
from murho.service.outcomes.adaptation import ADAPTATION, AdaptationFollower, state_of, take_up
from murho.service.outcomes.quality import ALARM, AlarmFollower, quality_of
from murho.service.outcomes.store import HOUR, Store
from murho.service.outcomes.types import Batch, FeatureFacts, QualityQuery, VersionFacts
from tests.model.conftest import present

SCORES = np.array([-3.09, -2.576, -2.326, -1.96, -1.645, -1.282, -1.036, -0.842, -0.674, -0.524, -0.253])
GRID = np.concatenate([SCORES, [0.0], -SCORES[::-1]]).astype(np.float32)
FEATURE = FeatureFacts("Origin", date=False, groups=("EU", "USA"))
NUMBER, CLASSES = VersionFacts("y", None, (FEATURE,), 100), VersionFacts("y", ("no", "yes"), ())


def batch(ids: Sequence[str], *, version: str = "1", at: float | None = None, means: float = 10.0) -> Batch:
    """Predictions N(mean, 1) that come from EU and USA by the last digit of their id."""
    inputs = [json.dumps({"Origin": ("EU", "USA")[ord(key[-1]) % 2]}) for key in ids]
    answers = np.tile(GRID, (len(ids), 1)).tobytes()
    at = time.time() if at is None else at
    return Batch("m", version, at, list(ids), np.full(len(ids), means).tobytes(), answers, inputs, facts=NUMBER)


def quality(store: Store, **asked: Any) -> dict[str, Any]:
    return quality_of(store, "m", store.facts("m"), QualityQuery(**asked))


@pytest.mark.parametrize("seed", range(2))
def test_quality_is_a_recount_whatever_happens(store: Store, seed: int) -> None:
    """Predictions, again and late, outcomes of known and unknown ids, wild ones until revised, some forgotten.

    Against a dictionary and NumPy.
    """
    random, now = np.random.default_rng(seed), time.time()
    known: dict[str, tuple[float, str, float]] = {}  # id: when, version, mean
    told: dict[str, float] = {}
    for _ in range(60):
        ids = [str(number) for number in random.choice(300, size=random.integers(1, 25), replace=False)]
        if random.random() < 0.5:
            at = now - random.uniform(0.0, 40.0) * 24 * HOUR
            version, mean = str(random.integers(1, 3)), float(random.integers(8, 13))
            store.record([batch(ids, version=version, at=at, means=mean)])
            known |= {key: (at, version, mean) for key in ids if key not in told and known.get(key, (0.0,))[0] <= at}
        else:
            values = random.integers(8, 13, len(ids)).astype(float).tolist()
            found = store.add("m", ids, values)
            new = {key: value for key, value in zip(ids, values, strict=True) if key in known}
            assert (found.accepted, set(found.unknown)) == (len(new), set(ids) - set(new))
            assert found.revised == sum(told.get(key, value) != value for key, value in new.items())
            told |= new
            if random.random() < 0.7:
                continue
            wild, forgotten = ([*told][place : place + 2] for place in random.integers(0, len(told) + 1, 2))
            store.add("m", wild, [random.choice([1.76e12, -9.9e37])] * len(wild))
            store.add("m", wild, [told[key] for key in wild])
            assert store.forget("m", forgotten) == len(forgotten)
            for key in forgotten:
                del known[key], told[key]
    assert {pair.id: pair.value for pair in store.pairs("m")} == told
    for window in ("12h", "9d", "6w"):
        answer = quality(store, window=window, by="Origin")
        since = np.datetime64(answer["from"][:-1]).astype("datetime64[s]").astype(float)
        pairs = [pair for pair in store.pairs("m") if pair.at >= since]
        for version in ("1", "2"):
            for group in (None, "EU", "USA"):
                these = [
                    pair for pair in pairs
                    if pair.version == version and (group is None or json.loads(pair.inputs or "")["Origin"] == group)
                ]  # fmt: skip
                line: dict[str, Any] = next((each for each in answer["versions"] if each["version"] == version), {})
                if group is not None:
                    line = next((each for each in line.get("groups", ()) if each["group"] == group), {})
                assert line.get("n", 0) == len(these)
                if these:
                    errors = np.array([float(pair.mean or 0.0) - float(pair.value) for pair in these])
                    pits = np.array([pair.pit for pair in these])
                    assert line["bias"] == pytest.approx(errors.mean())
                    assert line["rmse"] == pytest.approx(np.sqrt((errors**2).mean()))
                    assert line["pit"] == np.histogram(pits, 20, (0.0, 1.0))[0].tolist()
                    inside = np.abs(errors) <= 1.645
                    assert line["coverage"]["90"]["share"] == pytest.approx(inside.mean())
                    assert line["coverage"]["90"]["low"] < inside.mean() + 1e-9
    with schema.reading(store.engine) as connection:
        revisions = connection.execute(text("SELECT id, value FROM revisions")).all()
    assert all(value != told[key] or (key, value) in revisions for key, value in revisions)


def test_outcomes_count_once_and_a_later_value_revises(store: Store) -> None:
    assert len(LEVELS) == len(GRID)
    store.record([batch(["a", "b", "c"])])
    found = store.add("m", ["b", "nowhere", "a", "b"], [11.0, 1.0, 12.0, 13.0])  # of equal ids the last holds
    assert (found.accepted, found.revised, [*found.unknown]) == (2, 0, ["nowhere"])
    before = quality(store)["versions"]
    assert store.add("m", ["a", "b"], [12.0, 13.0]).revised == 0  # again: nothing changes
    assert quality(store)["versions"] == before
    assert store.add("m", ["a"], [10.5]).revised == 1
    assert store.add("m", ["a"], [12.0]).revised == 1
    (now,) = quality(store)["versions"]
    assert (now["n"], now["alarm"]["outcomes"]) == (2, 2)
    with schema.reading(store.engine) as connection:
        assert connection.execute(text("SELECT value FROM revisions ORDER BY number")).scalars().all() == [12.0, 10.5]


@pytest.mark.parametrize("wild", [1.76e12, -9.9e37])
@pytest.mark.parametrize("way", ["revised", "forgotten", "recounted"])
def test_an_outcome_that_is_no_more_leaves_all_as_if_it_had_never_been(
    opened: Callable[[], Store], tmp_path: Path, wild: float, way: str
) -> None:
    store, other = opened(), Store(str(tmp_path / "other.db"), [AlarmFollower(), AdaptationFollower("adaptive")])
    ids, values = [str(row) for row in range(500)], np.random.default_rng(0).normal(10.0, 1.0, 500).tolist()
    spoilt = ids[::2]
    for each in (store, other):
        each.record([batch(ids)])
    for place in range(0, 500, 50):
        part = ids[place : place + 50]
        store.add(
            "m", part, [wild if key in spoilt else value for key, value in zip(part, values[place:], strict=False)]
        )
        kept = [key for key in part if key not in spoilt]
        other.add("m", kept, [values[int(key)] for key in kept])
    assert quality(store)["versions"][0]["alarm"]["raised"]
    if way == "forgotten":
        assert store.forget("m", spoilt) == len(spoilt)
    else:
        for part in (spoilt[:60], spoilt[60:]):
            for each in (store, other):
                each.add("m", part, [values[int(key)] for key in part])
    if way == "recounted":
        with schema.writing(store.engine) as connection:
            connection.execute(text("DELETE FROM rollups"))
            connection.execute(text("UPDATE states SET document = '{}'"))
        assert store.recount("m") == 500
    learned, same = (json.loads(present(each.state("m", "1", ADAPTATION)).document) for each in (store, other))
    assert learned == same
    counted, same = (json.loads(present(each.state("m", "1", ALARM)).document)["test"] for each in (store, other))
    assert counted["ranks"] == same["ranks"]
    (ours,), (theirs,) = (quality(each, by="Origin")["versions"] for each in (store, other))
    assert ours["pit"] == theirs["pit"]
    evidence = pytest.approx(theirs["alarm"]["evidence"], abs=1e-9)
    assert ours["alarm"] == {"raised": False, "outcomes": theirs["n"], "evidence": evidence}
    for one, same in zip([ours, *ours["groups"]], [theirs, *theirs["groups"]], strict=True):
        assert [one[key] for key in ("n", "rmse", "crps", "bias")] == pytest.approx(
            [same[key] for key in ("n", "rmse", "crps", "bias")], rel=1e-12
        )
    other.close()


def test_a_state_that_was_gone_back_to_stays_whatever_comes_of_earlier_outcomes(store: Store) -> None:
    ids = [str(row) for row in range(100)]
    store.record([batch(ids)])
    for place in range(0, 60, 20):
        store.add("m", ids[place : place + 20], [13.0] * 20)
    assert take_up(store, "m", "1", 1) == 4
    store.add("m", ids[60:], [13.0] * 40)
    store.add("m", ids[:1], [10.0])
    store.forget("m", ids[60:70])
    learned = present(state_of(present(store.state("m", "1", ADAPTATION)).document))
    assert learned.outcomes == 20 + 30 + 1  # of the state, of those since, and the revised one


def test_an_hour_that_was_partly_cleaned_is_counted_again_with_the_deleted_ones(store: Store) -> None:
    hour = (time.time() // HOUR - 30) * HOUR
    for minute in range(60):
        store.record([batch([f"{minute}a", f"{minute}b"], at=hour + 60 * minute)])
        store.add("m", [f"{minute}a", f"{minute}b"], [10.0 + minute, 1e12])
    before = quality(store, window="9d", by="Origin")["versions"][0]
    assert before["n"] == 120
    store.add("m", [f"{minute}b" for minute in range(60)], [10.0] * 60)
    assert store.clean(hour + 60 * 29.5) == 60
    assert store.clean(hour + 60 * 39.5) == 20
    store.add("m", ["50b"], [11.0])
    store.forget("m", ["51a"])
    (now,) = quality(store, window="9d", by="Origin")["versions"]
    errors = [*(float(minute) for minute in range(60) if minute != 51), *[0.0] * 59, 1.0]
    assert (now["n"], now["bias"]) == (119, pytest.approx(-np.mean(errors)))
    assert now["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(errors))))
    assert sum(group["n"] for group in now["groups"]) == 119
    store.clean(hour + HOUR)
    assert quality(store, window="9d")["versions"][0]["n"] == 119
    with schema.reading(store.engine) as connection:
        assert connection.scalar(text("SELECT count(*) FROM rollups WHERE deleted = 1")) == 0


def test_an_id_is_its_latest_prediction_until_its_outcome_comes(store: Store) -> None:
    now = time.time()
    store.record([batch(["q"], at=now, means=20.0), batch(["q"], at=now - 5, means=10.0)])  # a killed worker's, late
    assert getattr(store.prediction("m", "q"), "mean", None) == 20.0
    store.record([batch(["q"], at=now + 1, means=30.0)])
    assert store.add("m", ["q"], [31.0]).accepted == 1
    store.record([batch(["q"], at=now + 2, means=40.0)])
    assert getattr(store.prediction("m", "q"), "mean", None) == 30.0
    assert quality(store)["versions"][0]["bias"] == -1.0


def test_quality_of_classes_and_of_a_version_that_was_another_model(store: Store) -> None:
    answers = np.array([[0.9, 0.1, 1, 0], [0.2, 0.8, 1, 1], [0.3, 0.7, 0, 1], [0.6, 0.4, 1, 0]], np.float32)
    store.record([Batch("m", "1", time.time(), list("abcd"), b"", answers.tobytes(), facts=CLASSES)])
    found = store.add("m", [*"abcd"], ["no", "yes", "no", "maybe" * 1000])
    assert found.accepted == 3
    assert "is none" in found.unknown["d"]
    assert len(found.unknown["d"]) < 200
    (told,) = quality(store)["versions"]
    assert told["accuracy"]["share"] == pytest.approx(2 / 3)
    assert told["log_loss"] == pytest.approx(-np.log([0.9, 0.8, 0.3]).mean())
    assert told["sets"]["coverage"]["share"] == pytest.approx(2 / 3)
    assert told["sets"]["size"] == pytest.approx(4 / 3)
    assert told["ece"] == pytest.approx((0.1 + 0.2 + 0.7) / 3)
    store.record([batch(["e"])])
    assert "another model" in store.add("m", ["d"], [1.0]).unknown["d"]
    assert store.add("m", ["e"], [1.0]).accepted == 1


def test_an_alarm_is_of_one_version(store: Store) -> None:
    random = np.random.default_rng(0)
    ids = [str(row) for row in range(400)]
    store.record([batch(ids), batch([f"n{key}" for key in ids], version="2")])
    right = random.normal(10.0, 1.0, len(ids))
    store.add("m", [*ids, *(f"n{key}" for key in ids)], [*right.tolist(), *(right + 1.5).tolist()])
    first, second = quality(store)["versions"]
    assert not first["alarm"]["raised"]
    assert second["alarm"]["raised"]
    assert second["alarm"]["since"] <= second["alarm"]["at"]


def test_workers_that_get_the_same_outcomes_count_them_once(opened: Callable[[], Store]) -> None:
    ids = [str(number) for number in range(300)]
    first = opened()
    stores = [first, opened(), opened()]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda store: store.record([batch(ids), batch(ids[::-1])]), stores))
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
    assert [pair.id for pair in store.pairs("m")] == ["0-1"]
    assert quality(store, window="12w")["versions"][0]["n"] == 2  # sums of those that are cleaned away stay
    with schema.writing(store.engine) as connection:
        assert connection.scalar(text("SELECT count(*) FROM revisions")) == 0


def test_a_store_that_is_too_large_loses_the_share_that_is_too_much(store: Store) -> None:
    """Also if it is looked at again at once, by another worker or after a pause: files stay as large as they were."""
    now, count = time.time(), 20_000
    for part in range(200):
        store.record([batch([f"{part}-{row}" for row in range(count // 200)], at=now - 200 + part)])
    size = store.size()
    most = int(0.93 * size)
    gone = store.clean(most_bytes=most)
    assert 0.06 * count < gone < 0.09 * count
    assert abs(store.size() - most) < 0.02 * size
    if store.url.drivername != "sqlite":
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM")
    gone += store.clean(most_bytes=most)
    assert gone < 0.1 * count
    assert store.prediction("m", "199-1")  # the oldest have gone


def _open(address: str, barrier: Any, failed: Any) -> None:
    barrier.wait(30)
    try:
        Store(address).close()
    except OptionError as error:
        failed.put(str(error))


def test_processes_that_open_a_store_at_once_create_it_once(address: str, opened: Callable[[], Store]) -> None:
    context = get_context("fork")
    barrier, failed = context.Barrier(6), context.Queue()
    processes = [context.Process(target=_open, args=(address, barrier, failed)) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert failed.empty(), failed.get()
    store = opened()
    with schema.writing(store.engine) as connection:
        assert connection.execute(text("SELECT format FROM murho_store")).scalars().all() == [schema.STORE_FORMAT]
        connection.execute(text("UPDATE murho_store SET format = 99"))
    with pytest.raises(OptionError, match="made by another Murho"):
        opened()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("/nowhere/at/all.db", "can't be opened"),
        ("mysql://me:secret@host/db", "neither a file nor an address"),
        ("postgresql://me:secret@127.0.0.1:1/db", "can't be opened"),
        ("sqlite:///:memory:", "isn't a file"),
        ("sqlite:///nowhere/murho.db?mode=ro", "isn't a file"),
        ("nowhere/murho.db?mode=ro", "isn't a file"),
        ("sqlite:///file:murho.db?mode=ro&uri=true", "isn't a file"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(address: str, message: str) -> None:
    with pytest.raises(OptionError, match=message) as error:
        Store(address)
    assert "secret" not in str(error.value)
