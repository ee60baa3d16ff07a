"""One OpenTelemetry span a prediction, for whoever has set up a collector.

With the packages of ``murho[otel]`` and an exporter in the environment (``OTEL_EXPORTER_OTLP_ENDPOINT`` or
``OTEL_TRACES_EXPORTER=otlp``), spans go there; the SDK reads all else that the standard has from ``OTEL_…``: the
resource, the sampler, headers, batches. Without them, the trace of a caller still shows in the log.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Span

__all__ = ["TRACEPARENT", "Tracing"]

TRACEPARENT = re.compile("[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
"""The header that says to which trace a request belongs (W3C Trace Context); its first group is the trace."""
NAMES = {
    "method": "http.request.method",
    "path": "url.path",
    "status": "http.response.status_code",
    "client": "client.address",
}
"""What OpenTelemetry's conventions call a thing that the access log says; all else has the prefix murho."""
PREDICTIONS = ("/predict", "/infer", "/invocations")
"""Ends of the routes that have spans."""


class Tracing:
    """Makes spans.

    Args:
        processor: Gets the spans that have ended; None: they go where the environment says.
    """

    def __init__(self, processor: SpanProcessor | None = None) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        named = {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": "murho"}
        self._provider = TracerProvider(resource=Resource.create(named))
        self._provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer, self._kind = self._provider.get_tracer("murho"), SpanKind.SERVER
        self._propagator = TraceContextTextMapPropagator()

    @classmethod
    def of_environment(cls) -> Tracing | None:
        """Returns tracing if the environment asks for it."""
        asked = os.environ.get("OTEL_TRACES_EXPORTER", "").lower()
        endpoint = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        if disabled or asked not in ("", "otlp") or not (asked or endpoint):
            return None
        try:
            return cls()
        except ModuleNotFoundError:
            structlog.get_logger("murho.tracing").warning("no spans: they need pip install 'murho[otel]'")
            return None

    def begin(self, method: str, route: str, trace: Mapping[str, str], since: int) -> Span | None:
        """Begins the span of a request; None for one that is no prediction.

        Args:
            method: Of HTTP.
            route: The template of its path.
            trace: Its headers `traceparent` and `tracestate`, if it has them.
            since: When it arrived, in nanoseconds since 1970.
        """
        if not route.endswith(PREDICTIONS):
            return None
        parent = self._propagator.extract(trace)
        return self._tracer.start_span(f"{method} {route}", parent, self._kind, start_time=since)

    def traceparent(self, span: Span) -> str:
        """Returns the header that says where a span belongs."""
        context = span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def end(self, span: Span, status: int, said: Mapping[str, Any]) -> None:
        """Ends a span.

        Args:
            span: The span.
            status: Of the answer; 500 and more are errors.
            said: What the access log says.
        """
        from opentelemetry.trace import StatusCode

        span.set_attributes(
            {NAMES.get(name, f"murho.{name}"): value for name, value in said.items() if value is not None}
        )
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end()

    def close(self) -> None:
        """Sends the spans that wait; it may take as long as the exporter waits for its collector."""
        self._provider.shutdown()
