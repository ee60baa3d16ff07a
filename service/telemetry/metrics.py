"""The Prometheus metrics of one application: of requests, passes, versions, and of the doubt in their answers.

Each version that is served and was asked has series of its own.

What answers say of a model's doubt are sums over rows, so that a query divides two of them: the mean std of the last
five minutes is ``rate(murho_std_total[5m]) / rate(murho_spread_rows_total[5m])``.

The processes of a service (`service.supervisor`) write their metrics into files, as prometheus-client has it, and each
front end can answer a scrape for all. There a gauge can't be a function, so those that are functions are set before a
scrape, and each second.

Beside these distributions, `OfVersion` has plain sums, for whoever asks about one model.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

from murho.model.predictive.prediction import AnyPrediction, Prediction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from murho.service.engine.admission import Admission
    from murho.service.engine.jobs import Timing

# Geometric buckets, in seconds: a single row takes about a millisecond, a batch of a million rows minutes.
SECONDS = tuple(0.0005 * 2**step for step in range(18))
JOBS = tuple(2**step for step in range(11))
OF_VERSION = ("model", "version")


class Telemetry:
    """The metrics of one application, in a registry of its own.

    Args:
        shared: Whether other processes of this service have such metrics too.

    Attributes:
        versions: What counts the work of each version, by name and version; any thread may ask.
        served: Name and version of all that are served.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self.registry = registry = CollectorRegistry()
        self._shared = shared
        self._followed: list[tuple[Gauge, Callable[[], float]]] = []
        self.versions = _Versions(self)
        self.served: Sequence[tuple[str, str]] = ()
        self._of_versions: list[Counter] = []

        def counter(name: str, help_line: str, labels: Sequence[str] = ()) -> Counter:
            made = Counter(name, help_line, labels, registry=registry)
            self._of_versions += [made] if labels is OF_VERSION else []
            return made

        def seconds(name: str, help_line: str, labels: Sequence[str] = ()) -> Histogram:
            return Histogram(name, help_line, labels, buckets=SECONDS, registry=registry)

        self.requests = counter(
            "murho_http_requests_total", "Requests answered, by route template.", ("method", "route", "status")
        )
        self.request_seconds = seconds(
            "murho_http_request_seconds", "Seconds from a request's arrival to the end of its answer.", ("route",)
        )
        # The library looks up the metric of some labels in 3 microseconds, and a dictionary in 0.1.
        self._of_requests = lru_cache(4096)(
            lambda method, route, status: (
                self.requests.labels(method, route, str(status)),
                self.request_seconds.labels(route),
            )
        )
        self.queue_seconds = seconds("murho_queue_seconds", "Seconds a prediction waited for computation.", ("model",))
        self.compute_seconds = seconds("murho_compute_seconds", "Seconds of computation of a prediction.", ("model",))
        self.pass_jobs = Histogram(
            "murho_pass_jobs", "Requests that shared one pass of the engine.", buckets=JOBS, registry=registry
        )
        self.rows = counter("murho_rows_total", "Rows predicted.", OF_VERSION)
        self.totals_rows = counter("murho_totals_rows_total", "Rows added up in totals.", OF_VERSION)
        self.totals_groups = counter("murho_totals_groups_total", "Groups of answered totals.", OF_VERSION)
        self.unlike = counter("murho_unlike_rows_total", "Rows beyond the range of the training rows.", OF_VERSION)
        self.spread_rows = counter(
            "murho_spread_rows_total", "Rows answered with draws and noise, over which the next sums go.", OF_VERSION
        )
        self.std = counter("murho_std_total", "Sum over rows of the predictive std, in the target's unit.", OF_VERSION)
        self.entropy = counter("murho_entropy_total", "Sum over rows of the entropy, in nats.", OF_VERSION)
        self.epistemic_share = counter(
            "murho_epistemic_share_total",
            "Sum over rows of the epistemic share, 0 to 1: of the variance, or of the entropy for classes.",
            OF_VERSION,
        )
        self.unrecorded = counter("murho_unrecorded_rows_total", "Rows for which the way to the store had no room.")
        self.outcomes = counter("murho_outcomes_total", "Outcomes of recorded rows, revisions too.", OF_VERSION)
        self.inside = counter(
            "murho_outcomes_inside_total", "Outcomes in the central 90 % band, or in the prediction set.", OF_VERSION
        )
        self.alarm = self._gauge(  # the latest of a front end: an outcome that is revised may end an alarm
            "murho_alarm", "Whether outcomes are not as predicted.", OF_VERSION, mode="livemostrecent"
        )
        self.protocol_errors = counter(
            "murho_protocol_errors_total",
            "Connections refused or cut off before a request was handled, by kind.",
            ("kind",),
        )
        self._reloads = reload_counter(registry)
        self.refused = self._gauge("murho_refused_checkpoints", "Checkpoints that are refused.", mode="livemax")
        self.listed = self._gauge(
            "murho_checkpoints_listed",
            "Whether the place of the checkpoints could be listed at the last look.",
            mode="livemin",
        )
        self.ready = self._gauge("murho_ready", "Whether the service is ready.", mode="livemin")
        self.in_flight = self._gauge(
            "murho_in_flight_bytes",
            "Bytes of requests (bodies and rows), and of answers and totals until they are sent.",
            ("kind",),
        )
        self.connections = self._gauge("murho_connections", "Open connections.")
        # Every front end knows what is pending in all.
        self._pending = self._gauge("murho_pending_requests", "Predictions waiting or in computation.", mode="livemax")
        self._pending_cost = self._gauge("murho_pending_cost", "Row-draws waiting or in computation.", mode="livemax")
        registry.register(_ServedVersions(self))

    def _gauge(
        self,
        name: str,
        help_line: str,
        labels: Sequence[str] = (),
        mode: Literal["livesum", "livemin", "livemax", "livemostrecent"] = "livesum",
    ) -> Gauge:
        return Gauge(name, help_line, labels, registry=self.registry, multiprocess_mode=mode)

    def follow(self, gauge: Gauge, function: Callable[[], float]) -> None:
        """Have a gauge show what a function returns."""
        self._followed.append((gauge, function))

    def follow_pending(self, admission: Admission) -> None:
        """Have two gauges show what is pending."""
        self.follow(self._pending, lambda: admission.pending)
        self.follow(self._pending_cost, lambda: admission.pending_cost)

    def refresh(self) -> None:
        """Set the gauges that follow functions."""
        for gauge, function in self._followed:
            gauge.set(function())

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics, of all front ends, and their media type.

        Args:
            accept: The header `Accept` of the scrape.
        """
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError):  # a version that is no number
            encode, content_type = choose_encoder("")
        self.refresh()
        registry = self.registry
        if self._shared:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
            registry.register(_ServedVersions(self))  # all front ends serve the same ones
        return encode(registry), content_type

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        requests, request_seconds = self._of_requests(method, route, status)
        requests.inc()
        request_seconds.observe(seconds)

    def count_reload(self, outcome: str) -> None:
        """Count what happened to one version."""
        self._reloads.labels(outcome).inc()

    def count_pass(self, name: str, version: str, jobs: int, rows: int, seconds: float) -> None:
        """Count one pass of the engine; any thread may."""
        self.pass_jobs.observe(jobs)
        batches, size = self.versions[name, version].batches, 1 << (rows - 1).bit_length()
        count, before = batches.get(size, (0, 0.0))
        batches[size] = count + 1, before + seconds

    def show_served(self, served: Sequence[tuple[str, str]]) -> None:
        """Take name and version of all that are served, in the place of those before, at once."""
        self.served = served
        for name, version in self.versions.keys() - set(served):
            del self.versions[name, version]
            if self._shared:  # files of metrics only grow
                continue
            for metric in (*self._of_versions, self.alarm):
                metric.remove(name, version)
            if all(other != name for other, _ in self.versions):
                self.queue_seconds.remove(name)
                self.compute_seconds.remove(name)


def reload_counter(registry: CollectorRegistry | None) -> Counter:
    """Return the counter of versions that were loaded, refused and unloaded; an engine process counts them, too."""
    about = "Versions loaded, refused and unloaded since the start."
    made = Counter("murho_reloads_total", about, ("outcome",), registry=registry)
    for outcome in ("loaded", "refused", "unloaded"):
        made.labels(outcome)
    return made


class _Versions(dict[tuple[str, str], "OfVersion"]):
    def __init__(self, metrics: Telemetry) -> None:
        self._metrics = metrics

    def __missing__(self, key: tuple[str, str]) -> OfVersion:
        return self.setdefault(key, OfVersion(self._metrics, key))


class OfVersion:
    """The work of one version: its metrics, looked up once, as the library takes 3 microseconds for each; and sums.

    The compute thread and the event loop add to it.

    Attributes:
        rows: Rows answered.
        last: When the last request was answered, in seconds since 1970-01-01 UTC; 0.0: none was.
        answered: Number of requests that were answered.
        seconds: Of these, from their arrival to their answer.
        queue: Seconds of these in the queue.
        compute: Seconds of these in computation; requests that share a batch have its time each.
        failed: Number of requests for this version that were refused or failed.
        failed_seconds: Of these, until then.
        batches: Passes of the engine and their seconds, by their size: the smallest power of two that is not below
            their rows.
    """

    def __init__(self, metrics: Telemetry, labels: tuple[str, str]) -> None:
        self._metrics, self._labels = metrics, labels
        self.rows = self.answered = self.failed = 0
        self.last = self.seconds = self.queue = self.compute = self.failed_seconds = 0.0
        self.batches: dict[int, tuple[int, float]] = {}
        self._rows, self._unlike = metrics.rows.labels(*labels), metrics.unlike.labels(*labels)
        self._queue, self._compute = metrics.queue_seconds.labels(labels[0]), metrics.compute_seconds.labels(labels[0])
        self._spread_rows = metrics.spread_rows.labels(*labels)
        self._share = metrics.epistemic_share.labels(*labels)
        self._spread: Counter | None = None  # a model has std or entropy

    def count_rows(self, prediction: AnyPrediction, rows: int, *, noise: bool = True) -> None:
        """Count the rows of a prediction, or of a part of one, and what they say of the model's doubt.

        Answers without draws (``samples=0``) and of the function alone have no split of their spread, so only the rows
        unlike the training rows are counted there.

        Args:
            prediction: The prediction, finite.
            rows: Number of its rows.
            noise: Whether it describes new observations; one of the function alone says nothing of the noise.
        """
        self._rows.inc(rows)
        if found := int(np.count_nonzero(prediction.extrapolation)):
            self._unlike.inc(found)
        if isinstance(prediction, Prediction):
            whole, part, power = prediction.std, prediction.epistemic_std, 2
        else:
            whole, part, power = prediction.entropy, prediction.epistemic_entropy, 1
        if not noise or whole is None or part is None:
            return
        if rows == 1:  # the usual case, without NumPy's overhead
            total = max(0.0, float(whole[0]))
            share = min(max(float(part[0]) / total, 0.0), 1.0) ** power if total else 0.0
        else:
            total = max(0.0, float(whole.sum()))
            ratio = np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0.0)
            share = float((np.clip(ratio, 0.0, 1.0) ** power).sum())
        if self._spread is None:
            self._spread = (self._metrics.std if power == 2 else self._metrics.entropy).labels(*self._labels)
        self._spread.inc(total)
        self._share.inc(share)
        self._spread_rows.inc(rows)

    def count_answer(self, rows: int, timing: Timing, seconds: float) -> None:
        """Count a request that was answered; its rows are counted before.

        Args:
            rows: Number of rows.
            timing: In the queue and in computation.
            seconds: From its arrival.
        """
        self._queue.observe(timing.queue)
        self._compute.observe(timing.compute)
        self.rows += rows
        self.last = time.time()
        self.answered += 1
        self.seconds += seconds
        self.queue += timing.queue
        self.compute += timing.compute

    def count_totals(self, rows: int, groups: int) -> None:
        """Count the rows and groups of answered totals."""
        self._metrics.totals_rows.labels(*self._labels).inc(rows)
        self._metrics.totals_groups.labels(*self._labels).inc(groups)

    def count_failure(self, seconds: float) -> None:
        """Count a request that was refused or failed."""
        self.failed += 1
        self.failed_seconds += seconds

    def count_outcomes(self, count: int, inside: int, *, alarm: bool) -> None:
        """Count outcomes, those in their band or set, and show whether the alarm is raised; any thread may."""
        self._metrics.outcomes.labels(*self._labels).inc(count)
        self._metrics.inside.labels(*self._labels).inc(inside)
        self._metrics.alarm.labels(*self._labels).set(alarm)


class _ServedVersions:
    """Two gauges, made at each scrape: `murho_served_versions` and `murho_model_info`."""

    def __init__(self, metrics: Telemetry) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Make the gauges, as prometheus-client asks."""
        served = self._metrics.served
        yield GaugeMetricFamily("murho_served_versions", "Versions served.", value=len(served))
        info = GaugeMetricFamily("murho_model_info", "1 for each version served.", labels=OF_VERSION)
        for labels in served:
            info.add_metric(labels, 1)
        yield info
