"""`Client`: what it sends, what it makes of each reply, and when it tries again."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from murho_client import (
    AuthenticationError,
    Busy,
    Client,
    DeadlineExceeded,
    InternalError,
    InvalidInput,
    MurhoClientError,
    NotReady,
    ServiceError,
    TooLarge,
    UnexpectedAnswer,
    UnknownModel,
    Unreachable,
)

from tests.client.stand_in import StandIn, problem

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = {"x": [1.0, 2.0, 3.0], "kind": ["a", "a", None]}
KEY = "sk-verysecret-0123456789"


def client(service: StandIn, **options: Any) -> Client:
    return Client("http://murho.test", transport=service.transport, **options)


def always(response: Callable[[], httpx.Response], on: str = "/predict") -> StandIn:
    """A service that gives the same answer to every request whose path ends with `on`."""
    return StandIn(lambda request: response() if request.url.path.endswith(on) else None)


def times(count: int, response: Callable[[], httpx.Response]) -> StandIn:
    """A service that answers predictions wrongly so many times, then rightly."""
    left = [count]

    def before(request: httpx.Request) -> httpx.Response | None:
        if request.method == "GET" or not left[0]:
            return None
        left[0] -= 1
        return response()

    return StandIn(before)


def cut() -> httpx.Response:
    return httpx.Response(200, headers={"content-type": "application/json"}, content=b'{"model": {"name": "li')


def refuse() -> httpx.Response:
    raise httpx.ConnectError("[Errno 111] Connection refused")


# ---- requests


def test_only_the_options_that_were_chosen_are_sent() -> None:
    service = StandIn()
    # NumPy's numbers, and one where a list is wanted, are understood.
    chosen: dict[str, Any] = {"samples": np.int64(8), "percentiles": np.array([10, 90]), "thresholds": 20}
    with client(service) as murho:
        murho.predict(ROWS)
        murho.predict(
            ROWS, "line", seed=3, noise=False, calibrated=False, include="draws", coverage=np.float64(0.8), **chosen
        )
    plain, full = service.documents
    assert {name: plain[name] for name in plain if name != "inputs"} == {"samples": 256, "percentiles": [5, 50, 95]}
    assert {name: full[name] for name in full if name != "inputs"} == {
        "samples": 8,
        "percentiles": [10, 90],
        "seed": 3,
        "noise": False,
        "calibrated": False,
        "thresholds": [20],
        "include": ["draws"],
        "coverage": 0.8,
    }


def test_the_path_names_model_and_version() -> None:
    service = StandIn()
    with client(service) as murho:
        murho.predict(ROWS)
        murho.predict(ROWS, "line")
        murho.predict(ROWS, "line", "1")
    posted = [request.url.path for request in service.requests if request.method == "POST"]
    assert posted == ["/predict", "/models/line/predict", "/models/line/versions/1/predict"]


def test_the_address_may_have_a_path_of_its_own() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(200, json={"status": "ready"})

    with Client("https://user:word@murho.test/at/home/", transport=httpx.MockTransport(answer)) as murho:
        assert murho.ready()
        assert repr(murho) == "Client('https://murho.test/at/home')"
    assert asked == ["https://user:word@murho.test/at/home/readyz"]


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://murho.test", "", "http://", None])
def test_what_is_no_address_is_refused(url: Any) -> None:
    with pytest.raises(ValueError, match=r"It looks like 'http://127\.0\.0\.1:8000'"):
        Client(url)


@pytest.mark.parametrize(
    "options",
    [{"timeout": 0}, {"max_concurrency": 0}, {"max_rows_per_request": 0}, {"retries": -1}, {"api_key": "a\nb"}],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        Client("http://murho.test", **options)


@pytest.mark.parametrize(
    "options", [{"samples": 2.5}, {"samples": "8"}, {"percentiles": ["a"]}, {"seed": True}, {"thresholds": [np.nan]}]
)
def test_options_of_the_wrong_kind_are_named_before_anything_is_sent(options: dict[str, Any]) -> None:
    service = StandIn()
    with client(service) as murho, pytest.raises(InvalidInput, match=next(iter(options))):
        murho.predict(ROWS, **options)
    assert service.requests == []


# ---- the model's description


def test_a_model_is_described_once() -> None:
    service = StandIn()
    with client(service) as murho:
        for _ in range(3):
            murho.predict(ROWS)
    assert service.paths == ["/models", "/models/line", *["/predict"] * 3]


def test_rows_that_do_not_fit_the_model_are_not_sent() -> None:
    service = StandIn()
    with client(service) as murho, pytest.raises(InvalidInput) as caught:
        murho.predict({"x": [1.0, "two"], "kind": ["a", "a"]})
    assert (caught.value.problems[0].row, caught.value.problems[0].feature) == (1, "x")
    assert caught.value.status is None
    assert service.documents == []


def test_a_description_that_is_out_of_date_is_asked_for_again() -> None:
    service = StandIn()
    with client(service) as murho:
        murho.predict(ROWS, "line")
        service.version, service.features = "2", service.features[:1]
        prediction = murho.predict({"x": [1.0]}, "line")
    assert prediction.version == "2"
    assert service.paths.count("/models/line") == 2


def test_a_service_that_describes_no_models_still_predicts() -> None:
    service = StandIn(lambda request: problem(404, "nothing") if request.method == "GET" else None)
    with client(service) as murho:
        np.testing.assert_allclose(murho.predict(ROWS).mean, [3, 5, 7])
        murho.predict(ROWS)
    assert service.paths == ["/models", "/predict", "/predict"]


def test_models_and_their_versions() -> None:
    service = StandIn()
    with client(service) as murho:
        (listed,) = murho.models()
        assert service.paths == ["/models"]
        assert (listed.name, listed.version, listed.versions) == ("line", "1", ("1",))
        assert (listed.task, listed.target, listed.unit, listed.classes) == ("regression", "y", None, None)
        described = murho.model("line")
        assert described == murho.model("line", "1")
        assert (described.name, described.version, described.target) == ("line", "1", "y")
        with pytest.raises(UnknownModel, match="There is no such model"):
            murho.model("circle")
        with pytest.raises(InvalidInput, match="A version needs the name of its model"):
            murho.predict(ROWS, version="1")


@pytest.mark.parametrize("models", [None, [None], [{"name": "a"}], [{"name": "a", "version": "1", "target": "y"}]])
def test_a_list_of_models_that_is_none_is_no_answer(models: object) -> None:
    with (
        client(StandIn(lambda _: httpx.Response(200, json={"models": models}))) as murho,
        pytest.raises(UnexpectedAnswer, match="lists its models in a way"),
    ):
        murho.models()


# ---- many rows


def test_large_tables_are_split_and_put_together_in_order() -> None:
    running, most, lock = [0], [0], threading.Lock()

    def before(request: httpx.Request) -> None:
        if request.method == "GET":
            return
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.002 if b"[0.0," in request.content else 0.001)
        with lock:
            running[0] -= 1

    service = StandIn(before)
    x = np.arange(103.0)
    seen = []
    with client(service, max_rows_per_request=10, max_concurrency=3) as murho:
        prediction = murho.predict(
            {"x": x, "kind": ["a"] * 103}, progress=lambda done, total: seen.append((done, total))
        )
    np.testing.assert_array_equal(prediction.mean, 2 * x + 1)
    assert len(service.documents) == 11
    assert 1 < most[0] <= 3
    assert seen[-1] == (103, 103)
    # All parts go to one version, whatever becomes the latest meanwhile.
    assert {path for path in service.paths if path.endswith("predict")} == {"/models/line/versions/1/predict"}


def test_the_first_error_ends_the_others() -> None:
    def before(request: httpx.Request) -> httpx.Response | None:
        return problem(500, "internal") if b"[20.0," in request.content else None

    service = StandIn(before)
    with client(service, max_rows_per_request=10, max_concurrency=2) as murho, pytest.raises(InternalError):
        murho.predict({"x": np.arange(1000.0), "kind": ["a"] * 1000})
    assert len(service.documents) < 50


def test_problems_of_a_later_part_name_the_rows_of_the_whole() -> None:
    def before(request: httpx.Request) -> httpx.Response | None:
        if b"[20.0," not in request.content:
            return None
        wrong = {"pointer": "/inputs/x/3", "message": "Too strange."}
        return problem(422, "bad-input", "70 things are wrong with the input; …", errors=[wrong] * 50)

    with client(StandIn(before), max_rows_per_request=10) as murho, pytest.raises(InvalidInput) as caught:
        murho.predict({"x": np.arange(50.0), "kind": ["a"] * 50})
    assert str(caught.value.problems[0]) == "row 23, x: Too strange."
    assert caught.value.total == 70
    assert caught.value.status == 422


def test_a_model_that_is_replaced_meanwhile_gives_no_mixed_answer() -> None:
    def before(request: httpx.Request) -> httpx.Response | None:
        service.version = str(len(service.documents))
        return problem(404, "nothing") if request.method == "GET" else None

    service = StandIn(before)
    with client(service, max_rows_per_request=10) as murho, pytest.raises(UnexpectedAnswer, match="was replaced"):
        murho.predict({"x": np.arange(50.0), "kind": ["a"] * 50})


def test_the_first_error_cuts_the_waits_of_the_others_short() -> None:
    def before(request: httpx.Request) -> httpx.Response | None:
        if b"[0.0," in request.content:
            return problem(429, "queue-full", retry_after=30)
        if b"[10.0," in request.content:
            time.sleep(0.2)
            return problem(500, "internal")
        return None

    begin = time.monotonic()
    with client(StandIn(before), max_rows_per_request=10) as murho, pytest.raises(InternalError):
        murho.predict({"x": np.arange(20.0), "kind": ["a"] * 20})
    while any(thread.name.startswith("murho-client") for thread in threading.enumerate()):
        assert time.monotonic() - begin < 10
        time.sleep(0.01)


def test_draws_are_asked_for_in_small_parts() -> None:
    service = StandIn()
    with client(service) as murho:
        murho.predict({"x": np.arange(2000.0), "kind": ["a"] * 2000}, samples=1000, include=["draws"])
    assert [len(document["inputs"]["x"]) for document in service.documents] == [1000, 1000]


# ---- replies


@pytest.mark.parametrize(
    ("status", "kind", "name"),
    [
        (401, AuthenticationError, "no-key"),
        (403, AuthenticationError, "no-key"),
        (404, UnknownModel, "unknown-model"),
        (413, TooLarge, "too-large"),
        (415, ServiceError, "unsupported-media-type"),
        (500, InternalError, "internal"),
        (504, DeadlineExceeded, "deadline-passed"),
    ],
)
def test_problems_become_errors_of_their_kind(status: int, kind: type[MurhoClientError], name: str) -> None:
    service = always(lambda: problem(status, name, "Do it otherwise."))
    with client(service) as murho, pytest.raises(kind, match="Do it otherwise") as caught:
        murho.predict(ROWS)
    assert len(service.documents) == 1
    if isinstance(caught.value, ServiceError):
        assert caught.value.status == status
        assert caught.value.problem["type"] == f"urn:murho:problem:{name}"


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (lambda: httpx.Response(200, html="<h1>Welcome to nginx!</h1>"), "Welcome to nginx.* no Murho service"),
        (lambda: httpx.Response(404, html="<h1>Not Found</h1>"), "404 .*no Murho service"),
        (lambda: httpx.Response(404, json={"detail": "Not Found"}), "Not Found.*no Murho service"),
        (lambda: httpx.Response(302, headers={"location": "https://login.test/?token=1"}), r"redirects \(302\).*login"),
        (lambda: httpx.Response(200, json={"predictions": [1, 2, 3]}), "left out model.*too old or too new"),
        (lambda: httpx.Response(200, json=[1, 2, 3]), "no JSON object"),
        (lambda: httpx.Response(200, content=b'{"mean": NaN}', headers={"content-type": "application/json"}), "JSON"),
        (cut, "22 bytes that are no JSON object; they may be cut"),
    ],
)
def test_what_is_no_murho_is_shown(response: Callable[[], httpx.Response], words: str) -> None:
    with client(always(response), retries=1) as murho, pytest.raises(UnexpectedAnswer, match=words) as caught:
        murho.predict(ROWS)
    assert "http://murho.test/predict" in str(caught.value)
    assert "token" not in str(caught.value)


def test_an_answer_for_other_rows_is_none() -> None:
    def before(request: httpx.Request) -> httpx.Response | None:
        fewer = httpx.Request("POST", request.url, json={"inputs": {"x": [1.0]}, "samples": 1, "percentiles": []})
        return StandIn().respond(fewer) if request.method == "POST" else None

    with client(StandIn(before)) as murho, pytest.raises(UnexpectedAnswer, match="1 rows; 3 were sent"):
        murho.predict(ROWS)


def test_an_answer_with_missing_parts_is_none() -> None:
    partial = {"model": {"name": "line", "version": "1"}, "target": "y", "samples": 1, "seed": 1, "mean": [1, 2, 3]}
    with client(always(lambda: httpx.Response(200, json=partial))) as murho, pytest.raises(UnexpectedAnswer):
        murho.predict(ROWS)


# ---- attempts


@pytest.mark.parametrize(
    "response",
    [
        lambda: problem(429, "queue-full", retry_after=0),
        lambda: problem(503, "not-ready", retry_after=0),
        lambda: httpx.Response(502, html="Bad Gateway"),
        cut,
        refuse,
    ],
)
def test_passing_failures_are_tried_again(response: Callable[[], httpx.Response]) -> None:
    service = times(2, response)
    with client(service) as murho:
        np.testing.assert_allclose(murho.predict(ROWS).mean, [3, 5, 7])
    assert len(service.documents) == 3


@pytest.mark.parametrize(
    ("response", "kind"),
    [
        (lambda: problem(429, "queue-full", "The queue is full.", retry_after=0), Busy),
        (lambda: problem(503, "not-ready", "Loading.", retry_after=0), NotReady),
        (refuse, Unreachable),
    ],
)
def test_the_last_error_says_how_often_it_was_tried(
    response: Callable[[], httpx.Response], kind: type[MurhoClientError]
) -> None:
    with (
        client(always(response), retries=2) as murho,
        pytest.raises(kind, match=r"Tried 3 times in \d+\.\d seconds"),
    ):
        murho.predict(ROWS)


def test_retry_after_is_waited_for() -> None:
    service = times(1, lambda: problem(429, "queue-full", retry_after=1))
    with client(service) as murho:
        begin = time.monotonic()
        murho.predict(ROWS)
    assert time.monotonic() - begin >= 1


def test_no_attempt_is_made_after_the_deadline() -> None:
    service = always(lambda: problem(429, "queue-full", retry_after=60))
    begin = time.monotonic()
    with client(service) as murho, pytest.raises(Busy, match="Tried once") as caught:
        murho.predict(ROWS, timeout=20)
    assert time.monotonic() - begin < 20
    assert caught.value.retry_after == 60


def test_the_deadline_bounds_all_attempts_together() -> None:
    begin = time.monotonic()
    with client(always(refuse), retries=100) as murho, pytest.raises(Unreachable):
        murho.predict(ROWS, timeout=0.5)
    assert time.monotonic() - begin < 20


def test_ready_is_a_question_and_not_an_error() -> None:
    for response, ready in [
        (lambda: problem(503, "not-ready"), False),
        (refuse, False),
        (lambda: httpx.Response(200, json={"status": "ready"}), True),
    ]:
        service = always(response, on="/readyz")
        with client(service) as murho:
            assert murho.ready() is ready
        assert len(service.requests) == 1
    service = always(lambda: httpx.Response(200, html="Hello"), on="/readyz")
    with client(service) as murho, pytest.raises(UnexpectedAnswer):
        murho.ready()


# ---- keys


@pytest.mark.parametrize(
    "response",
    [lambda: problem(401, "no-key"), cut, refuse, lambda: httpx.Response(200, html="Hello"), lambda: problem(500, "a")],
)
def test_no_error_repr_or_log_shows_the_key(
    response: Callable[[], httpx.Response], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    service = always(response)
    murho = client(service, api_key=KEY, retries=1)
    with murho, pytest.raises(MurhoClientError) as caught:
        murho.predict(ROWS)
    assert service.requests[-1].headers["authorization"] == f"Bearer {KEY}"
    chain: BaseException | None = caught.value
    while chain is not None:
        assert KEY not in repr(vars(chain)) + str(chain)
        assert not hasattr(chain, "request")
        shown = traceback.TracebackException.from_exception(chain, capture_locals=True)
        assert KEY not in "".join(shown.format())
        chain = chain.__cause__ or chain.__context__
    assert KEY not in repr(murho) + repr(vars(murho)) + caplog.text


def test_the_environment_has_the_key_of_a_client_that_is_given_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MURHO_API_KEY", KEY)
    for given, sent in ((None, KEY), ("other", "other")):
        service = always(lambda: problem(401, "unauthorized"))
        with client(service, api_key=given) as murho, pytest.raises(AuthenticationError):
            murho.predict(ROWS)
        assert service.requests[-1].headers["authorization"] == f"Bearer {sent}"
    monkeypatch.setenv("MURHO_API_KEY", "two words")
    with pytest.raises(ValueError, match="MURHO_API_KEY is empty, or has a space"):
        client(service)
