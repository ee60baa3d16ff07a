"""The autoscaling policy: as many replicas as the cost that waits for answers takes.

The cost of a request is its rows times its draws. A thousand requests of one row may be less work than one of a million
rows, so their number says little. Ray's controller runs this module by value: it imports nothing of Murho.
"""

from __future__ import annotations

from typing import Any

METRIC = "pending_cost"
"""What each replica reports: the row-draws that wait or are being computed in it."""


class PendingCost:
    """An autoscaling policy of Ray Serve.

    Each tick asks for ``(sum of the replicas' pending cost) / target`` replicas. Ray averages the cost over
    ``look_back_period_s`` and applies its delays and bounds, the least and the most replicas among them.
    """

    def __init__(self, row_draws_per_replica: float = 1_000_000.0) -> None:
        """Set the target.

        Args:
            row_draws_per_replica: Pending row-draws of a replica that has enough to do: about what it computes in a
                second.
        """
        if row_draws_per_replica <= 0:
            raise ValueError(f"row_draws_per_replica must be positive, not {row_draws_per_replica!r}")
        self._target = row_draws_per_replica

    def __call__(self, ctx: Any) -> tuple[float, dict[str, Any]]:
        """Return the wanted number of replicas, and no state.

        Args:
            ctx: Ray's ``AutoscalingContext``.
        """
        costs = (ctx.aggregated_metrics or {}).get(METRIC)
        if not costs:  # no replica has reported yet
            return ctx.target_num_replicas, {}
        return sum(costs.values()) / self._target, {}
