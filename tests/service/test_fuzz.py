"""Whatever a client sends, the service answers it or says what is wrong with it; it never fails."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murho.service.app import create_app
from murho.service.settings import Settings
from tests.service.classifiers import Classifier
from tests.service.support import ROW, AppClient, FakeModel, make_client, train_checkpoint
from tests.support import made_once

FUZZ = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**64), 2**64)
GOOD_CELLS: dict[str, st.SearchStrategy[Any]] = {
    "Weight": NUMBERS,
    "Horsepower": NUMBERS | st.none(),
    "Automatic": st.booleans(),
    "Year": st.none() | st.dates().map(str) | st.datetimes().map(lambda moment: moment.isoformat()),
    "Origin/plant": st.text(max_size=10) | NUMBERS,
}
GOOD_OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "samples": st.integers(0, 20),
    "percentiles": st.lists(st.floats(0, 100, exclude_min=True, exclude_max=True), max_size=5),
    "seed": st.integers(0, 2**63 - 1),
    "noise": st.booleans(),
    "thresholds": st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=5),
    "include": st.lists(st.sampled_from(["draws", "mc_error"]), max_size=2),
}
CLASS_OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    **{name: GOOD_OPTIONS[name] for name in ("samples", "percentiles", "seed", "include")},
    "calibrated": st.booleans(),
    "coverage": st.floats(0, 1, exclude_min=True, exclude_max=True),
}
GOOD_REQUESTS = st.fixed_dictionaries(
    {"inputs": st.lists(st.fixed_dictionaries(GOOD_CELLS), min_size=1, max_size=4)}, optional=GOOD_OPTIONS
)

CLASS_REQUESTS = st.fixed_dictionaries(
    {"inputs": st.lists(st.fixed_dictionaries(GOOD_CELLS), min_size=1, max_size=4)}, optional=CLASS_OPTIONS
)


@pytest.fixture(scope="module")
def fake() -> Iterator[AppClient]:
    with make_client(FakeModel()) as client:
        yield client


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AppClient]:
    root = made_once(tmp_path_factory, "tiny cars", lambda directory: train_checkpoint(directory, "cars"))
    with AppClient(create_app(Settings(checkpoints=root / "checkpoints", device="cpu"))) as client:
        yield client


@pytest.fixture(scope="module")
def classifier() -> Iterator[AppClient]:
    with make_client(Classifier()) as client:
        yield client


@pytest.fixture(scope="module")
def described(fake: AppClient) -> st.SearchStrategy[Any]:
    """Return requests as the service describes them itself."""
    document = fake.get("/openapi.json").json()
    strategy: st.SearchStrategy[Any] = schemathesis.openapi.from_dict(document)["/predict"]["POST"].as_strategy()
    return strategy


def check(response: httpx.Response) -> None:
    """Check that the service did not fail and that every number of an answer is finite."""
    assert response.status_code in {200, 413, 422}, response.text
    if response.status_code != 200:
        assert response.headers["content-type"] == "application/problem+json"
        return

    def numbers(node: object) -> Iterator[float]:
        if isinstance(node, dict | list):
            for child in node.values() if isinstance(node, dict) else node:
                yield from numbers(child)
        elif isinstance(node, float):
            yield node

    assert all(math.isfinite(number) for number in numbers(response.json()))


@FUZZ
@given(body=GOOD_REQUESTS)
def test_no_good_request_makes_a_real_model_fail(real: AppClient, body: dict[str, Any]) -> None:
    check(real.post("/predict", content=json.dumps(body)))


@FUZZ
@given(body=CLASS_REQUESTS)
def test_no_good_request_makes_a_classifier_fail(classifier: AppClient, body: dict[str, Any]) -> None:
    response = classifier.post("/predict", content=json.dumps(body))
    check(response)
    if response.status_code == 200:
        answer = response.json()
        assert all(abs(sum(row) - 1.0) < 1e-9 for row in answer["probabilities"])
        if answer["prediction_set"] is not None:
            assert all(answer["prediction_set"]["values"])


@FUZZ
@given(data=st.data())
def test_no_request_of_its_own_description_makes_it_fail(
    fake: AppClient, described: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    check(fake.post("/predict", json=data.draw(described).body))


@FUZZ
@given(name=st.text(max_size=20), version=st.text(max_size=5))
def test_no_path_makes_it_fail(fake: AppClient, name: str, version: str) -> None:
    from urllib.parse import quote

    for path in (
        f"/models/{quote(name)}",
        f"/models/{quote(name, safe='')}/versions/{quote(version, safe='')}",
    ):
        assert fake.get(path).status_code in {200, 404}
        assert fake.post(f"{path}/predict", {"inputs": [ROW]}).status_code in {200, 404, 405}
