"""The statistics extension: what each version has done since it was loaded, whatever the protocol it was asked by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.service.telemetry.model_statistics import Sum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.service.engine.jobs import ModelLike
    from murho.service.telemetry.model_statistics import ModelStatistics, Totals

__all__ = ["statistics_document"]

NOTHING = Sum()
MILLISECONDS, NANOSECONDS = 1e3, 1e9


def statistics_document(models: Sequence[ModelLike], statistics: ModelStatistics) -> dict[str, Any]:
    """Returns the statistics of some versions."""
    return {"model_stats": [_of(model, statistics.of(model)) for model in models]}


def _of(model: ModelLike, totals: Totals) -> dict[str, Any]:
    """Returns the statistics of a version.

    Decoding and encoding aren't measured, and there is no cache: their counts are 0. `batch_size` is rounded up to a
    power of two.
    """
    batches = sorted(totals.batches.copy().items())
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": int(MILLISECONDS * totals.last),
        "inference_count": totals.rows,
        "execution_count": sum(batch.count for _, batch in batches),
        "inference_stats": {
            "success": _sum(totals.success),
            "fail": _sum(totals.fail),
            "queue": _sum(totals.queue),
            "compute_input": _sum(NOTHING),
            "compute_infer": _sum(totals.compute),
            "compute_output": _sum(NOTHING),
            "cache_hit": _sum(NOTHING),
            "cache_miss": _sum(NOTHING),
        },
        "response_stats": {},
        "batch_stats": [
            {
                "batch_size": size,
                "compute_input": _sum(NOTHING),
                "compute_infer": _sum(batch),
                "compute_output": _sum(NOTHING),
            }
            for size, batch in batches
        ],
        "memory_usage": [],
    }


def _sum(total: Sum) -> dict[str, int]:
    return {"count": total.count, "ns": int(NANOSECONDS * total.seconds)}
