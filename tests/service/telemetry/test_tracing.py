"""Traces: a span a prediction where somebody collects them, ids and times in answers and log lines always."""

from __future__ import annotations

import re

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from murho.service.http.middleware import RequestLog
from murho.service.telemetry.log import Tracing
from tests.service.support import ROW, AppClient, FakeModel, failing, make_client

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = {"traceparent": f"00-{TRACE}-{CALLER}-01"}
VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_TRACES_EXPORTER")


@pytest.fixture
def spans(client: AppClient) -> InMemorySpanExporter:
    """Return the spans of the client's application."""
    exporter = InMemorySpanExporter()
    outermost = getattr(client.app, "middleware_stack", None)
    assert isinstance(outermost, RequestLog)
    outermost.tracing = Tracing(SimpleSpanProcessor(exporter))
    return exporter


def test_a_prediction_is_one_span_below_its_caller(client: AppClient, spans: InMemorySpanExporter) -> None:
    answer = client.post("/models/cars/predict", {"inputs": [ROW, ROW], "samples": 5}, headers=PARENT)
    (span,) = spans.get_finished_spans()
    assert span.name == "POST /models/{name}/predict"
    assert span.kind is SpanKind.SERVER
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == CALLER
    said = dict(span.attributes or {})
    assert said["http.response.status_code"] == 200
    assert (said["murho.model"], said["murho.version"], said["murho.rows"], said["murho.samples"]) == (
        "cars",
        "1",
        2,
        5,
    )
    assert said["murho.request_id"] == answer.headers["x-request-id"]
    assert said["murho.trace_id"] == TRACE
    assert answer.headers["traceparent"] == f"00-{TRACE}-{span.context.span_id:016x}-01"
    assert span.start_time is not None
    assert span.end_time is not None
    assert 0 < span.end_time - span.start_time < 60e9


def test_what_is_refused_is_a_span_and_what_asks_for_health_is_none(
    client: AppClient, model: FakeModel, spans: InMemorySpanExporter
) -> None:
    client.get("/healthz")
    client.post("/predict", {"inputs": []})
    model.before = failing
    client.post("/predict", {"inputs": [ROW]})
    refused, failed = spans.get_finished_spans()
    assert (refused.attributes or {})["http.response.status_code"] == 422
    assert refused.status.status_code is StatusCode.UNSET
    assert failed.status.status_code is StatusCode.ERROR


def test_without_a_collector_the_trace_of_the_caller_comes_back(client: AppClient) -> None:
    answer = client.post("/predict", {"inputs": [ROW]}, headers=PARENT)
    assert answer.headers["traceparent"] == PARENT["traceparent"]
    answer = client.post("/predict", {"inputs": [ROW]}, headers={"traceparent": "nonsense"})
    assert "traceparent" not in answer.headers


def test_an_answer_says_what_took_its_time(client: AppClient) -> None:
    said = client.post("/predict", {"inputs": [ROW]}).headers["server-timing"]
    found = re.fullmatch(r"queue;dur=([\d.]+), compute;dur=([\d.]+), total;dur=([\d.]+)", said)
    assert found
    queue, compute, total = map(float, found.groups())
    assert queue + compute <= total + 0.1


def test_every_line_of_a_request_has_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    model = FakeModel()

    model.before = failing
    with make_client(model) as client:
        client.post("/predict", {"inputs": [ROW]}, headers={"x-request-id": "mine"})
    said = capsys.readouterr()
    assert "mine" in said.out + said.err


@pytest.mark.parametrize(
    ("variables", "on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, False),
    ],
)
def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], *, on: bool) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    tracing = Tracing.of_environment()
    assert (tracing is not None) is on
    if tracing is not None:
        tracing.close()
