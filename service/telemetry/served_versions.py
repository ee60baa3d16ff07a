"""The versions that are served, for Prometheus: how many there are, and by name as many as have room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

__all__ = ["ServedVersions"]


class ServedVersions:
    """Two gauges, made at each scrape: `murho_served_versions` and `murho_model_info`.

    Args:
        registry: Gets the metrics.
        most: The most versions by name. If more are served, only those are named that have series of their own.
        with_series: Returns name and version of these.
    """

    def __init__(
        self, registry: CollectorRegistry, most: int, with_series: Callable[[], Sequence[tuple[str, str]]]
    ) -> None:
        self._most, self._with_series = most, with_series
        self._served: dict[tuple[str, str], None] = {}
        registry.register(self)

    def __len__(self) -> int:
        return len(self._served)

    def show(self, served: Sequence[tuple[str, str]]) -> None:
        """Takes name and version of all that are served, in the place of those before, at once."""
        self._served = dict.fromkeys(served)

    def named(self) -> list[tuple[str, str]]:
        """Returns name and version of those that are shown by name."""
        served = self._served
        return list(served) if len(served) <= self._most else [each for each in self._with_series() if each in served]

    def collect(self) -> Iterator[Metric]:
        """Makes the gauges, as prometheus-client asks."""
        yield GaugeMetricFamily("murho_served_versions", "Versions served.", value=len(self._served))
        info = GaugeMetricFamily(
            "murho_model_info",
            "1 for each version served; of more than `metric_models`, for those that were asked.",
            labels=("model", "version"),
        )
        for labels in self.named():
            info.add_metric(labels, 1)
        yield info
