"""The log of the process, lines for people on a terminal, JSON for machines; and the spans of requests.

With the packages of ``murho[otel]`` and an exporter in the environment (``OTEL_EXPORTER_OTLP_ENDPOINT`` or
``OTEL_TRACES_EXPORTER=otlp``), each prediction is a span, which goes there; OpenTelemetry's SDK reads all else that the
standard has from ``OTEL_…``: the resource, the sampler, headers, batches. Without them, the trace of a caller still
shows in the log.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import sys
import threading
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TextIO, cast

import orjson
import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Span

REQUEST_ID: ContextVar[str] = ContextVar("request_id")
"""The id of the request in hand, for every line of the log about it."""

LINES = frozenset({"exception", "stack"})
"""What a traceback is called in a log line: it has several lines."""


def for_people(style: Literal["auto", "console", "json"]) -> bool:
    """Return whether log lines are for people rather than machines."""
    return style == "console" or (style == "auto" and sys.stderr.isatty())


def escape_texts(value: Any, *, lines: bool = False) -> Any:
    r"""Return what a log line says, with what isn't printable in its texts as escapes, such as \x1b.

    Clients choose paths and values. A control character would command the terminal that shows the log, a line break
    would forge a line, and a mark of direction (U+202E) would show another text than there is.

    Args:
        value: A text, or a container of texts; another object as the text that it shows.
        lines: Whether it may have line breaks and tabs.
    """
    if isinstance(value, str):
        if value.isprintable():
            return value
        kept = "\n\t" if lines else ""
        return "".join(
            mark if mark.isprintable() or mark in kept else mark.encode("unicode_escape").decode() for mark in value
        )
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, dict):
        return {escape_texts(str(key)): escape_texts(item, lines=key in LINES) for key, item in value.items()}
    return [escape_texts(item) for item in value] if isinstance(value, list | tuple | set) else escape_texts(str(value))


def _name_request(_logger: Any, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    if "request_id" not in event and (request_id := REQUEST_ID.get(None)) is not None:
        event["request_id"] = request_id
    return event


def _escape(_logger: Any, _name: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return cast("structlog.typing.EventDict", escape_texts(event))


WAITING_TEXTS = 4096
"""Texts that wait for a slow reader of stderr, of some lines each; access lines have at most 4 KiB in one."""
LAST_SECONDS = 1.0
"""In this time the last lines are written, unless nobody reads them."""


class Stderr:
    """stderr for a log: a full disk, a closed pipe or a reader that stalls loses lines, and stops nothing else."""

    _waiting: ClassVar[queue.Queue[str | None] | None] = None
    _dropped: ClassVar[int] = 0
    _counting: ClassVar[threading.Lock] = threading.Lock()

    def write(self, text: str) -> int:
        """Write a text, or leave it to the thread that writes; drop it if too many wait there."""
        with suppress(OSError, ValueError):
            if (waiting := Stderr._waiting) is None:
                sys.stderr.write(text)
            else:
                try:
                    waiting.put_nowait(text)
                except queue.Full:
                    with Stderr._counting:
                        Stderr._dropped += text.count("\n")
        return len(text)

    def flush(self) -> None:
        """Hand on what was written."""
        if Stderr._waiting is None:
            with suppress(OSError, ValueError):
                sys.stderr.flush()

    @classmethod
    @contextmanager
    def in_thread(cls) -> Iterator[None]:
        """Have a thread write during the block, so that nothing else waits for who reads; a fork ends it."""
        waiting: queue.Queue[str | None] = queue.Queue(WAITING_TEXTS)
        thread = threading.Thread(target=cls._write_all, args=(waiting, sys.stderr.fileno()), name="log", daemon=True)
        thread.start()
        cls._waiting = waiting
        try:
            yield
        finally:
            with suppress(queue.Full):
                waiting.put_nowait(None)
            thread.join(LAST_SECONDS)
            if not thread.is_alive():
                cls._waiting = None

    @classmethod
    def _write_all(cls, waiting: queue.Queue[str | None], number: int) -> None:
        while (text := waiting.get()) is not None:
            with suppress(OSError):
                data = text.encode(errors="backslashreplace")
                while data:
                    data = data[os.write(number, data) :]
            if cls._dropped and waiting.qsize() <= WAITING_TEXTS // 2:  # else this line might be dropped, too
                with cls._counting:
                    dropped, cls._dropped = cls._dropped, 0
                structlog.get_logger("murho.log").warning("log lines dropped: stderr was not read", lines=dropped)

    @classmethod
    def _forget(cls) -> None:
        cls._waiting = None


os.register_at_fork(after_in_child=Stderr._forget)


def configure_logging(level: str, style: Literal["auto", "console", "json"]) -> None:
    """Send the log of the whole process to stderr, the web server's lines included, in one form.

    Args:
        level: The least level: debug, info, warning or error.
        style: console for people, json for machines, auto by whether stderr is a terminal.
    """
    human = for_people(style)
    shared: list[structlog.typing.Processor] = [
        _name_request,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if human else "iso", utc=not human),
    ]
    render: list[structlog.typing.Processor] = [
        structlog.processors.format_exc_info,
        _escape,
        # Of its tracebacks, the default shows the variables of every frame. That is slow, and shows users' rows.
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
        if human
        else structlog.processors.JSONRenderer(_dumps),
    ]
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", Stderr())),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(cast("TextIO", Stderr()))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # The web server logs its own start and end at info; the service already says both.
    root.setLevel(logging.DEBUG if level == "debug" else max(logging.WARNING, getattr(logging, level.upper())))
    logging.getLogger("murho").setLevel(level.upper())


def _dumps(value: Any, **_: Any) -> str:
    return orjson.dumps(value, default=str).decode()


class LogLimit:
    """Lets a number of lines through in each period, and counts those that it holds back.

    Args:
        lines: The most lines of one period.
        seconds: The length of a period, which begins with its first line.
        clock: Monotonic seconds.
    """

    def __init__(self, lines: int, seconds: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._lines = lines
        self._seconds = seconds
        self._clock = clock
        self._end = -float("inf")
        self._said = 0
        self._held_back = 0

    def hold_back(self) -> int | None:
        """Ask for one line; return None if it is to be held back, else how many were before it."""
        now = self._clock()
        if now >= self._end:
            self._end = now + self._seconds
            self._said = 0
        if self._said >= self._lines:
            self._held_back += 1
            return None
        self._said += 1
        held_back, self._held_back = self._held_back, 0
        return held_back


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
        """Return tracing if the environment asks for it."""
        exporter = os.environ.get("OTEL_TRACES_EXPORTER", "").lower()
        endpoint = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
        disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        if disabled or exporter not in ("", "otlp") or not (exporter or endpoint):
            return None
        try:
            return cls()
        except ModuleNotFoundError:
            structlog.get_logger("murho.tracing").warning("no spans: they need pip install 'murho[otel]'")
            return None

    def begin(self, method: str, route: str, trace: Mapping[str, str], since: int) -> Span | None:
        """Begin the span of a request; None for one that is no prediction.

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
        """Return the header that says where a span belongs."""
        context = span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def end(self, span: Span, status: int, said: Mapping[str, Any]) -> None:
        """End a span.

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
        """Send the spans that wait; it may take as long as the exporter waits for its collector."""
        self._provider.shutdown()
