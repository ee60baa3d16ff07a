"""Telemetry: the Prometheus metrics of one application, and the log of the process."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

import orjson
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from murho.service.telemetry.doubt_metrics import DoubtMetrics
from murho.service.telemetry.loading_metrics import LoadingMetrics

if TYPE_CHECKING:
    from murho.service.checkpoints.registry import Snapshot
    from murho.service.scheduling.jobs import Answer
    from murho.service.scheduling.scheduler import Scheduler

__all__ = ["Telemetry", "configure_logging", "for_people"]

# Geometric buckets, in seconds: a single row takes about a millisecond, a batch of a million rows minutes.
SECONDS = tuple(0.0005 * 2**step for step in range(18))
JOBS = tuple(2**step for step in range(11))


class Telemetry:
    """The metrics of one application, in a registry of its own.

    Args:
        scheduler: The source of the gauges of pending work.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "murho_http_requests_total",
            "Requests answered, by route template.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "murho_http_request_seconds",
            "Seconds from a request's arrival to the end of its answer.",
            ("route",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.queue_seconds = Histogram(
            "murho_queue_seconds",
            "Seconds a prediction waited for computation.",
            ("model",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.compute_seconds = Histogram(
            "murho_compute_seconds",
            "Seconds of computation of a prediction.",
            ("model",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self.pass_jobs = Histogram(
            "murho_pass_jobs",
            "Requests that shared one pass of the engine.",
            buckets=JOBS,
            registry=self.registry,
        )
        self.pass_seconds = Histogram(
            "murho_pass_seconds", "Seconds of one pass of the engine.", buckets=SECONDS, registry=self.registry
        )
        # The library looks up the metric of some labels in 3 microseconds, and a dictionary in 0.1.
        self._of_requests = lru_cache(4096)(
            lambda method, route, status: (
                self.requests.labels(method, route, str(status)),
                self.request_seconds.labels(route),
            )
        )
        self._of_models = lru_cache(4096)(
            lambda name, version: (
                self.rows.labels(name, version),
                self.queue_seconds.labels(name),
                self.compute_seconds.labels(name),
            )
        )
        self.rows = Counter("murho_rows_total", "Rows predicted.", ("model", "version"), registry=self.registry)
        self.warned = Counter(
            "murho_warned_requests_total",
            "Predictions with warnings: rows unlike the training rows, or missing cells that are averaged over.",
            ("model", "version"),
            registry=self.registry,
        )
        self.doubt = DoubtMetrics(self.registry)
        self.loading = LoadingMetrics(self.registry)
        self.protocol_errors = Counter(
            "murho_protocol_errors_total",
            "Connections refused or cut off before a request was handled, by kind.",
            ("kind",),
            registry=self.registry,
        )
        self.connections = Gauge("murho_connections", "Open connections.", registry=self.registry)
        self.model_info = Gauge(
            "murho_model_info", "1 for each checkpoint served.", ("model", "version"), registry=self.registry
        )
        self._shown: set[tuple[str, str]] = set()
        self.reloads = Counter(
            "murho_reloads_total",
            "Versions loaded, refused and unloaded since the start.",
            ("outcome",),
            registry=self.registry,
        )
        for outcome in ("loaded", "refused", "unloaded"):
            self.reloads.labels(outcome)
        self.refused = Gauge("murho_refused_checkpoints", "Checkpoints that are refused.", registry=self.registry)
        self.listed = Gauge(
            "murho_checkpoints_listed",
            "Whether the place of the checkpoints could be listed at the last look.",
            registry=self.registry,
        )
        self.ready = Gauge("murho_ready", "Whether the service is ready.", registry=self.registry)
        pending = Gauge("murho_pending_requests", "Predictions waiting or in computation.", registry=self.registry)
        pending.set_function(lambda: scheduler.pending)
        cost = Gauge("murho_pending_cost", "Row-draws waiting or in computation.", registry=self.registry)
        cost.set_function(lambda: scheduler.pending_cost)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts one answered request."""
        requests, request_seconds = self._of_requests(method, route, status)
        requests.inc()
        request_seconds.observe(seconds)

    def count_pass(self, jobs: int, seconds: float) -> None:
        """Counts one pass of the engine."""
        self.pass_jobs.observe(jobs)
        self.pass_seconds.observe(seconds)

    def record(self, name: str, version: str, rows: int, answer: Answer, *, noise: bool = True) -> None:
        """Counts one prediction.

        Args:
            name: The model.
            version: Its version.
            rows: B.
            answer: The prediction.
            noise: Whether it describes new observations; one of the function alone says nothing of the noise.
        """
        counted, queue_seconds, compute_seconds = self._of_models(name, version)
        counted.inc(rows)
        queue_seconds.observe(answer.timing.queue)
        compute_seconds.observe(answer.timing.compute)
        if answer.outside:
            self.warned.labels(name, version).inc()
        self.doubt.record(name, version, answer.prediction, noise=noise)

    def show(self, snapshot: Snapshot) -> None:
        """Sets the gauges of the loaded and refused checkpoints."""
        served = {(model.name, version) for model in snapshot.models.values() for version in model.versions}
        # One by one: a scrape in the middle must not find that nothing is served.
        for labels in served:
            self.model_info.labels(*labels).set(1)
        for labels in self._shown - served:
            self.model_info.remove(*labels)
        self._shown = served
        self.loading.served = len(served)
        self.refused.set(sum(not item.waiting for item in snapshot.refused))
        self.listed.set(0 if snapshot.unreachable else 1)
        self.ready.set(1 if snapshot.models else 0)


def for_people(style: Literal["auto", "console", "json"]) -> bool:
    """Returns whether log lines are for people rather than machines."""
    return style == "console" or (style == "auto" and sys.stderr.isatty())


class _Stderr:
    """stderr for a log: a full disk or a closed pipe loses lines, and stops nothing else."""

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


def configure_logging(level: str, style: Literal["auto", "console", "json"]) -> None:
    """Sends the log of the whole process to stderr, the web server's lines included, in one form.

    Args:
        level: The least level: debug, info, warning or error.
        style: console for people, json for machines, auto by whether stderr is a terminal.
    """
    human = for_people(style)
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if human else "iso", utc=not human),
    ]
    render: list[structlog.typing.Processor] = (
        [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(),
                # The default shows the variables of every frame. That is slow, and puts users' rows into the log.
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
        if human
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_dumps)]
    )
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Stderr())),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(cast("TextIO", _Stderr()))
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
