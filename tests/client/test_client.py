"""`Client`: what it sends, what it makes of each response, and when it tries again."""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable
from email.utils import formatdate
from typing import Any
from unittest.mock import Mock

import httpx2
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
)

from tests.client.stand_in import ROWS, StandIn, client, problem, table

KEY = "sk-verysecret-0123456789"


def always(response: Callable[[], httpx2.Response], on: str = "/predict") -> StandIn:
    """Return a service that gives the same answer to every request whose path ends with `on`."""
    return StandIn(lambda request: response() if request.url.path.endswith(on) else None)


def times(count: int, response: Callable[[], httpx2.Response]) -> StandIn:
    """Return a service that answers predictions wrongly so many times, then rightly."""
    left = iter(range(count))
    return StandIn(lambda request: response() if request.method == "POST" and next(left, None) is not None else None)


def cut() -> httpx2.Response:
    return httpx2.Response(200, headers={"content-type": "application/json"}, content=b'{"model": {"name": "li')


def refuse() -> httpx2.Response:
    raise httpx2.ConnectError("[Errno 111] Connection refused")


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


def test_what_can_not_be_used_is_named_before_anything_is_sent() -> None:
    service = StandIn()
    wrong: list[dict[str, Any]] = [{"samples": 2.5}, {"percentiles": ["a"]}, {"thresholds": np.nan}]
    with client(service) as murho:
        for options in wrong:
            with pytest.raises(InvalidInput, match=next(iter(options))):
                murho.predict(ROWS, **options)
        with pytest.raises(TypeError, match=r"no option 'sample'. There are samples"):
            murho.predict(ROWS, sample=3)  # type: ignore[call-arg]
    assert service.requests == []
    of_clients: list[dict[str, Any]] = [{"timeout": 0}, {"max_concurrency": 0}, {"retries": -1}, {"api_key": "a\nb"}]
    for options in of_clients:
        with pytest.raises(ValueError, match=next(iter(options))):
            Client("http://murho.test", **options)
    for url in ("localhost:8000", "ftp://murho.test", "http://"):
        with pytest.raises(ValueError, match=r"^url is not .*, which looks like 'http://127\.0\.0\.1:8000'"):
            Client(url)


def test_address_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    service = StandIn()
    monkeypatch.setenv("MURHO_URL", "https://murho.test/at/home/")
    monkeypatch.setenv("MURHO_API_KEY", KEY)
    for given, sent in ((None, KEY), ("other", "other")):
        http = httpx2.Client(transport=httpx2.MockTransport(service))
        with Client(api_key=given, http_client=http) as murho, pytest.raises(UnknownModel):
            murho.model("boats")
        assert str(service.requests[-1].url) == "https://murho.test/at/home/models/boats"
        assert service.requests[-1].headers["authorization"] == f"Bearer {sent}"
    with pytest.raises(ValueError, match="a user and a password, and there is an api_key"):
        Client("https://user:word@murho.test/")
    monkeypatch.delenv("MURHO_API_KEY")
    assert repr(Client("https://user:word@murho.test/")) == "Client('https://murho.test')"
    monkeypatch.delenv("MURHO_URL")
    with pytest.raises(ValueError, match="give url, or set MURHO_URL"):
        Client()


def test_options_of_one_client_change_in_a_copy_on_its_connections() -> None:
    service = StandIn()
    with client(service, headers={"X-Team": "a"}) as murho:
        small = murho.with_options(max_rows_per_request=2, headers={"X-Job": "b"})
        small.predict(ROWS, headers={"X-Team": "c"})
        murho.predict(ROWS)
        with pytest.raises(ValueError, match="retries"):
            murho.with_options(retries=-1)
    headers = [request.headers for request in service.requests if request.method == "POST"]
    assert [(each["x-team"], each.get("x-job")) for each in headers] == [("c", "b"), ("c", "b"), ("a", None)]


def test_any_request_can_be_sent_and_its_response_read_as_it_came() -> None:
    service = StandIn(lambda request: problem(401, "no-key") if request.url.path == "/metrics" else None)
    with client(service) as murho:
        body = {"inputs": ROWS, "samples": 1, "percentiles": []}
        response = murho.request("post", "/models/line/predict", json=body, headers={"X-Team": "a"})
        assert (response.status, response.media_type, response.request_id) == (200, "application/json", "1")
        assert response.json()["mean"] == [3, 5, 7]
        assert service.requests[0].headers["x-team"] == "a"
        with pytest.raises(InvalidInput):
            murho.request("POST", "/models/line/predict", content=b'{"inputs": {}}', headers={"Content-Type": "a/b"})
        assert service.requests[1].headers["content-type"] == "a/b"
        with pytest.raises(AuthenticationError):
            murho.request("GET", "/metrics")
        with pytest.raises(ValueError, match="begins with '/'"):
            murho.request("GET", "@elsewhere/metrics")


def test_answers_errors_and_logs_have_the_ids_of_their_requests(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "murho_client")
    with client(StandIn(), max_rows_per_request=2) as murho:
        assert sorted(map(str, murho.predict(ROWS).request_ids)) == ["3", "4"]
        with pytest.raises(InvalidInput) as caught:
            murho.predict(ROWS | {"x": ["one", 2, 3]}, "line", "1")
    assert caught.value.request_id is not None
    assert "POST http://murho.test/models/line/versions/1/predict: 200, request 3" in caplog.text
    assert "1.0" not in caplog.text  # no data
    with client(times(1, lambda: problem(429, "queue-full", "Full.", retry_after=0))) as murho:
        murho.predict(ROWS)
    assert "Full. Trying again in 0." in caplog.text


def test_a_trace_goes_on_in_the_service() -> None:
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    service = StandIn()
    with (
        client(service, max_rows_per_request=1) as murho,
        trace.use_span(TracerProvider().get_tracer("test").start_span("caller")) as span,
    ):
        murho.predict(ROWS)
    sent = {request.headers["traceparent"].split("-")[1] for request in service.requests}
    assert sent == {f"{span.get_span_context().trace_id:032x}"}


# ---- the model's description


def test_a_model_is_described_once_and_named_in_the_path() -> None:
    service = StandIn()
    with client(service) as murho:
        for _ in range(2):
            murho.predict(ROWS)
        murho.predict(ROWS, "line", "1")
        with pytest.raises(InvalidInput, match="A version needs the name of its model"):
            murho.predict(ROWS, version="1")
    version = "/models/line/versions/1"
    assert service.paths == ["/models", "/models/line", "/predict", "/predict", version, f"{version}/predict"]


def test_a_description_that_is_out_of_date_is_asked_for_again() -> None:
    service = StandIn()
    with client(service) as murho:
        murho.predict(ROWS | {"y": [0] * 3}, "line")  # the target is left out
        service.version, service.target = "2", "z"
        service.features = [*service.features, {"name": "y", "kind": "numeric"}]
        assert murho.predict(ROWS | {"y": [0] * 3}, "line").version == "2"
        before = len(service.requests)
        with pytest.raises(InvalidInput):
            murho.predict(ROWS, "line")
    assert service.paths[before:] == ["/models/line/predict", "/models/line"]


def test_rows_are_sent_in_the_form_of_the_model() -> None:
    kinds = {"x": "numeric", "lift": "boolean", "kind": "categorical"}
    service = StandIn()
    service.features = [{"name": name, "kind": kind, "new": 1} for name, kind in kinds.items()]
    with client(service) as murho:
        model = murho.model("line")
        assert [(each.name, each.kind, each.max) for each in model.features] == [
            (*each, None) for each in kinds.items()
        ]
        assert (model.versions, model.target, model.task, model.metrics) == (("1",), "y", "regression", {"rmse": 0.5})
        murho.predict({"x": [1.5, 2], "lift": np.array([1.0, 0.0]), "kind": [True, 3], "y": [0, 0]}, "line")
        murho.predict([[1.5, True, "a"]], "line")
        with pytest.raises(InvalidInput, match="no feature"):
            murho.predict({"x": [1], "colour": ["red"]}, "line")
    assert [document["inputs"] for document in service.documents[:2]] == [
        {"x": [1.5, 2], "lift": [True, False], "kind": ["true", 3]},
        {"x": [1.5], "lift": [True], "kind": ["a"]},
    ]
    for broken in (None, [None], [{"name": "a"}], [{"name": "a", "version": "1", "target": "y"}]):
        listed = Mock(return_value=httpx2.Response(200, json={"models": broken}))
        with client(listed) as murho, pytest.raises(UnexpectedAnswer, match="client knows"):
            murho.models()
    told = Mock(return_value=httpx2.Response(200, json=service.describe() | {"features": ["x"]}))
    with pytest.raises(UnexpectedAnswer, match="client knows"):
        client(told).model("line")


# ---- many rows


def test_large_tables_are_split_and_put_together_in_order() -> None:
    running, most, lock = [0], [0], threading.Lock()

    def before(request: httpx2.Request) -> None:
        if request.method == "GET":
            return
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.002 if b"[0.0," in request.content else 0.001)
        with lock:
            running[0] -= 1

    service = StandIn(before)
    seen = []
    with client(service, max_rows_per_request=10, max_concurrency=3) as murho:
        prediction = murho.predict(table(1003), progress=lambda done, total: seen.append((done, total)))
    np.testing.assert_array_equal(prediction.mean, 2 * np.arange(1003.0) + 1)
    assert len(service.documents) == 101
    assert 1 < most[0] <= 3
    assert seen[-1] == (1003, 1003)
    # All parts go to one version, whatever becomes the latest meanwhile.
    assert {path for path in service.paths if path.endswith("predict")} == {"/models/line/versions/1/predict"}
    first = prediction.warnings[0]
    assert (first.row, first.feature, first.message) == (500, "x", "high")
    service.requests.clear()
    with client(service) as murho:  # an answer of at most a million draws
        murho.predict(table(2000), samples=1000, include=["draws"])
    assert [len(document["inputs"]["x"]) for document in service.documents] == [1000, 1000]


def test_the_first_error_ends_the_others() -> None:
    def before(request: httpx2.Request) -> httpx2.Response | None:
        if b"[0.0," in request.content:
            return problem(429, "queue-full", retry_after=30)
        if b"[20.0," in request.content:
            time.sleep(0.2)
            return problem(500, "internal")
        return None

    service, begin = StandIn(before), time.monotonic()
    with client(service, max_rows_per_request=10, max_concurrency=2) as murho, pytest.raises(InternalError):
        murho.predict(table(1000))
    assert len(service.documents) < 50
    while any(thread.name.startswith("murho-client") for thread in threading.enumerate()):
        assert time.monotonic() - begin < 10
        time.sleep(0.01)


def test_problems_of_a_later_part_name_the_rows_of_the_whole() -> None:
    def before(request: httpx2.Request) -> httpx2.Response | None:
        if b"[20.0," not in request.content:
            return None
        errors = [{"pointer": "/inputs/x/3", "message": "Too strange."}] * 50
        return problem(422, "bad-input", "70 validation errors; …", errors=errors)

    with client(StandIn(before), max_rows_per_request=10) as murho, pytest.raises(InvalidInput) as caught:
        murho.predict(table(50))
    assert str(caught.value.problems[0]) == "row 23, x: Too strange."
    assert (caught.value.total, caught.value.status) == (70, 422)


# ---- responses


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (403, AuthenticationError),
        (413, TooLarge),
        (415, ServiceError),
        (429, Busy),
        (503, NotReady),
        (500, InternalError),
        (504, DeadlineExceeded),
    ],
)
def test_problems_become_errors_of_their_kind(status: int, kind: type[MurhoClientError]) -> None:
    service = always(lambda: problem(status, "name", "Do it otherwise."))
    with client(service, retries=0) as murho, pytest.raises(kind, match="Do it otherwise") as caught:
        murho.predict(ROWS)
    if isinstance(caught.value, ServiceError):
        assert caught.value.status == status
        assert caught.value.problem["type"] == "urn:murho:problem:name"


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (lambda: httpx2.Response(200, html="<h1>Welcome to nginx!</h1>"), "Welcome to nginx.* no Murho service"),
        (lambda: httpx2.Response(404, html="<h1>Not Found</h1>"), "404 .*no Murho service"),
        (lambda: httpx2.Response(404, json={"detail": "Not Found"}), "Not Found.*no Murho service"),
        (
            lambda: httpx2.Response(302, headers={"location": "https://login.test/?token=1"}),
            r"redirects \(302\).*login",
        ),
        (lambda: httpx2.Response(200, json={"predictions": [1, 2, 3]}), "answered for no rows; 3 were sent"),
        (lambda: httpx2.Response(200, json={"mean": [1.0]}), "1 rows; 3 were sent"),
        (lambda: httpx2.Response(200, json={"mean": [1.0] * 3}), "isn't one that this client knows.*'model'"),
        (lambda: httpx2.Response(200, json=[1, 2, 3]), "no JSON object"),
        (lambda: httpx2.Response(200, content=b'{"mean": NaN}', headers={"content-type": "application/json"}), "JSON"),
        (cut, "22 bytes that are no JSON object; they may be cut"),
    ],
)
def test_what_is_no_murho_is_shown(response: Callable[[], httpx2.Response], words: str) -> None:
    with client(always(response), retries=1) as murho, pytest.raises(UnexpectedAnswer, match=words) as caught:
        murho.predict(ROWS)
    assert "token" not in str(caught.value)


# ---- attempts


def waits(service: StandIn, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[float]:
    """How long a client waits between its attempts, which it does at once here."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    with client(service, **options) as murho, pytest.raises(MurhoClientError):
        murho.predict(ROWS)
    return waited


def test_waits_grow_and_are_random(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = waits(always(refuse), monkeypatch, retries=12, timeout=1000)
    for number, wait in enumerate(waited):
        assert min(5.0, 0.1 * 2**number) / 2 <= wait <= min(5.0, 0.1 * 2**number)
    assert len(set(waited)) == len(waited) == 12


@pytest.mark.parametrize("as_date", [False, True])
def test_retry_after_is_waited_for_but_not_beyond_the_timeout(as_date: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    retry_after: object = formatdate(time.time() + 30, usegmt=True) if as_date else 30
    service = always(lambda: problem(429, "queue-full", retry_after=retry_after))
    (wait,) = waits(service, monkeypatch, retries=1, timeout=1000)
    assert 20 <= wait <= 30.1
    assert waits(service, monkeypatch, timeout=15) == []
    (wait,) = waits(always(lambda: problem(503, "x", retry_after="soon")), monkeypatch, retries=1)
    assert wait <= 0.1


def test_ready_is_a_question_and_not_an_error() -> None:
    for response, ready in [
        (lambda: problem(503, "not-ready"), False),
        (refuse, False),
        (lambda: httpx2.Response(200, json={"status": "ready"}), True),
    ]:
        service = always(response, on="/readyz")
        with client(service) as murho:
            assert murho.ready() is ready
        assert len(service.requests) == 1
    with client(always(cut, on="/readyz")) as murho, pytest.raises(UnexpectedAnswer):
        murho.ready()


# ---- keys


@pytest.mark.parametrize("response", [lambda: problem(401, "no-key"), cut, refuse, lambda: problem(500, "a")])
def test_no_error_repr_or_log_shows_the_key(
    response: Callable[[], httpx2.Response], caplog: pytest.LogCaptureFixture
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


# ---- progress


def test_progress_is_shown_on_a_terminal_after_a_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with client(StandIn(), max_rows_per_request=1, max_concurrency=1) as murho:
        murho.predict(ROWS)
        murho.predict(ROWS, progress=False)
        assert capsys.readouterr().err == ""
        murho.predict(ROWS, progress=True)
        shown = capsys.readouterr().err
        assert shown.startswith("\r 33%: 1 of 3 rows, ")
        assert shown.endswith("\r100%: 3 of 3 rows, 0 s left\n")
        monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
        murho.predict(ROWS)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr("murho_client._display.QUIET_SECONDS", 0.0)
        murho.predict(ROWS)
        assert capsys.readouterr().err


def test_a_recorded_request_that_is_sent_again_is_the_same_record() -> None:
    lost = iter([True, False] * 4)

    def lose(request: httpx2.Request) -> httpx2.Response | None:
        """Do what is asked, and lose the answer on the way."""
        if request.content and next(lost):
            raise httpx2.ReadError("The connection was reset.")
        if request.url.path.endswith("/decide"):
            return problem(422, "bad-input", "The model of this service decides nothing.")
        return None

    service = StandIn(lose)
    with client(service) as murho:
        murho.predict(table(2), "line", record=True)
        murho.predict(table(2), "line", record=True)
        with pytest.raises(MurhoClientError):
            murho.decide(table(2), [{"id": "a"}], "line", record=True)
        murho.predict(table(2), "line", record=True, ids=["a", "b"])
    ids = [document["ids"] for document in service.documents]
    first, again, second, second_again, third, third_again, *own = map(tuple, ids)
    assert (first, second, third) == (again, second_again, third_again)
    assert len({*first, *second, *third}) == 6
    assert own == [("a", "b")] * 2
