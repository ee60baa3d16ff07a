"""The Prometheus metrics of one application."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from murho.service.telemetry.doubt_metrics import DoubtMetrics, ModelDoubt
from murho.service.telemetry.model_series import OTHERS, ModelSeries
from murho.service.telemetry.served_versions import ServedVersions

if TYPE_CHECKING:
    from murho.model.predictive.prediction import AnyPrediction
    from murho.service.engine.jobs import Answer, Timing
    from murho.service.engine.scheduler import Scheduler
    from murho.service.models.registry import Snapshot

__all__ = ["Telemetry"]

# Geometric buckets, in seconds: a single row takes about a millisecond, a batch of a million rows minutes.
SECONDS = tuple(0.0005 * 2**step for step in range(18))
JOBS = tuple(2**step for step in range(11))


@dataclass(frozen=True, slots=True)
class _Series:
    """The metrics of one version, looked up once: the library takes 3 microseconds for each."""

    labels: tuple[str, str]
    rows: Counter
    queue: Histogram
    compute: Histogram
    doubt: ModelDoubt


class Telemetry:
    """The metrics of one application, in a registry of its own.

    Args:
        scheduler: The source of the gauges of pending work.
        most_models: The most versions with series of their own.
    """

    def __init__(self, scheduler: Scheduler, most_models: int = 100) -> None:
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
        self.rows = Counter("murho_rows_total", "Rows predicted.", ("model", "version"), registry=self.registry)
        self.warned = Counter(
            "murho_warned_requests_total",
            "Predictions with warnings: rows unlike the training rows, or missing cells that are averaged over.",
            ("model", "version"),
            registry=self.registry,
        )
        self.doubt = DoubtMetrics(self.registry)
        self.protocol_errors = Counter(
            "murho_protocol_errors_total",
            "Connections refused or cut off before a request was handled, by kind.",
            ("kind",),
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "murho_in_flight_bytes",
            "Bytes of requests (bodies and rows), of answers while they are computed, and in temporary files (spools).",
            ("kind",),
            registry=self.registry,
        )
        self.connections = Gauge("murho_connections", "Open connections.", registry=self.registry)
        self._series = ModelSeries(most_models, self._make_series, self._remove_series)
        self.served = ServedVersions(self.registry, most_models, self._series.places)
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
        self.record_rows(name, version, rows, answer.prediction, noise=noise)
        self.record_timing(name, version, answer.timing, warned=bool(answer.outside))

    def record_rows(self, name: str, version: str, rows: int, prediction: AnyPrediction, *, noise: bool = True) -> None:
        """Counts the rows of a prediction, or of a part of one; see `record`."""
        series = self._series.of(name, version)
        series.rows.inc(rows)
        series.doubt.record(prediction, noise=noise)

    def record_timing(self, name: str, version: str, timing: Timing, *, warned: bool) -> None:
        """Counts a prediction, without its rows."""
        series = self._series.of(name, version)
        series.queue.observe(timing.queue)
        series.compute.observe(timing.compute)
        if warned:
            self.warned.labels(*series.labels).inc()

    def show(self, snapshot: Snapshot) -> None:
        """Sets the gauges of the loaded and refused checkpoints."""
        self.served.show([(model.name, model.version) for model in snapshot.served])
        self.refused.set(sum(not item.waiting for item in snapshot.refused))
        self.listed.set(0 if snapshot.unreachable else 1)
        self.ready.set(1 if snapshot.models else 0)

    def _make_series(self, name: str, version: str) -> _Series:
        return _Series(
            (name, version),
            self.rows.labels(name, version),
            self.queue_seconds.labels(name),
            self.compute_seconds.labels(name),
            ModelDoubt(self.doubt, name, version, of_one_unit=(name, version) != OTHERS),
        )

    def _remove_series(self, name: str, version: str, name_stays: bool) -> None:
        self.rows.remove(name, version)
        self.warned.remove(name, version)
        self.doubt.remove(name, version)
        if not name_stays:
            self.queue_seconds.remove(name)
            self.compute_seconds.remove(name)
