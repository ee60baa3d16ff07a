"""Models in memory: how many there are, and the loads on request, with the setting `loaded_models`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from murho.service.models.model_cache import ModelCache, Noticed

__all__ = ["LoadingMetrics"]

SECONDS = tuple(0.01 * 2**step for step in range(12))


class LoadingMetrics:
    """The metrics of models in memory.

    Args:
        registry: Gets the metrics.

    Attributes:
        served: Versions that are served, which are those in memory unless a cache holds some of them.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.served = 0
        self._cache: ModelCache | None = None
        loaded = Gauge("murho_loaded_models", "Versions in memory.", registry=registry)
        loaded.set_function(lambda: self.served if self._cache is None else len(self._cache))
        waiting = Gauge("murho_pending_loads", "Versions that are being loaded, or wait for it.", registry=registry)
        waiting.set_function(lambda: 0 if self._cache is None else self._cache.loads)
        loads = Counter("murho_loads_total", "Loads on request, by outcome.", ("outcome",), registry=registry)
        self._loads = {outcome: loads.labels(outcome) for outcome in ("loaded", "failed")}
        self._evictions = Counter(
            "murho_evictions_total", "Versions that left the memory to make room.", registry=registry
        )
        self._seconds = Histogram(
            "murho_load_seconds", "Seconds of a load on request.", buckets=SECONDS, registry=registry
        )

    def watch(self, cache: ModelCache) -> None:
        """Shows how many versions a cache holds."""
        self._cache = cache

    def noticed(self, what: Noticed, seconds: float) -> None:
        """Counts what a cache did."""
        if what == "evicted":
            self._evictions.inc()
            return
        self._loads[what].inc()
        self._seconds.observe(seconds)
