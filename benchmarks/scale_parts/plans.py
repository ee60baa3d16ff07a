"""What large loads take, by arithmetic from unit costs, and what a jump of the load does, by simulation."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.scale_parts.autoscaler import PodAutoscaler
from benchmarks.scale_parts.simulation import closed_loop, open_loop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.scale_parts.simulation import Costs
    from benchmarks.scale_parts.unit_costs import UnitCosts

__all__ = ["RATES", "check_rows", "jump_rows", "model_rows", "request_rows", "request_size_rows", "row_rows"]

RATES = (1_000, 100_000, 10_000_000)
CORES_A_MACHINE = 64
MEMORY_A_MACHINE = 256e9
HALF = 0.5
"""Share of the most that a replica can do for which replicas are planned: bursts and failures need the rest."""


def check_rows(measured: UnitCosts, costs: Costs) -> list[list[str]]:
    """Measured and simulated rates and latencies of one service; the first and fourth rate made the costs."""
    rows = []
    for connections, rate in measured.rates.items():
        simulated = closed_loop(costs, connections)
        used = "fitted" if connections in (1, 32) else f"{simulated / rate:.2f}"
        rows.append([f"requests/s, {connections} connections", f"{rate:.0f}", f"{simulated:.0f}", used])
    outcome = open_loop(costs, lambda _: HALF * measured.rates[32], 60.0)
    for level in (50, 99):
        found, simulated = measured.half_load[f"p{level}"], outcome.percentile(level)
        rows.append(
            [
                f"p{level} at half the load, ms",
                f"{1e3 * found:.2f}",
                f"{1e3 * simulated:.2f}",
                f"{simulated / found:.2f}",
            ]
        )
    return rows


def request_rows(costs: Costs) -> list[list[str]]:
    """Replicas and machines for `RATES`, and the latency that a replica then gives."""
    outcome = open_loop(costs, lambda _: HALF * costs.most, 60.0)
    p99 = 1e3 * outcome.percentile(99.0)
    rows = []
    for rate in RATES:
        replicas = math.ceil(rate / (HALF * costs.most))
        machines = math.ceil(replicas / CORES_A_MACHINE)
        rows.append([f"{rate:,}", f"{replicas:,}", f"{machines:,}", f"{p99:.1f}"])
    return rows


def request_size_rows(measured: UnitCosts) -> list[list[str]]:
    """Requests and rows a second of one service by rows a request, and what a request costs beside one row."""
    one = measured.rates[32]
    rates = {1: one, **measured.row_rates}
    return [[f"{rows}", f"{rate:.0f}", f"{rows * rate:,.0f}", f"{one / rate:.1f}"] for rows, rate in rates.items()]


def row_rows(measured: UnitCosts, rows: float = 1e12, day: float = 86_400.0) -> list[list[str]]:
    """Core hours for offline rows, and the cores that end in a day."""
    seconds = rows / measured.rows
    return [[f"{rows:.0e}", f"{seconds / 3600:,.0f}", f"{math.ceil(seconds / day):,}"]]


def model_rows(measured: UnitCosts, counts: Sequence[int] = (100, 100_000)) -> list[list[str]]:
    """Memory for models that are all loaded, and the machines that hold them."""
    made = []
    for count in counts:
        memory = count * measured.model_memory
        made.append([f"{count:,}", f"{memory / 1e9:,.1f}", f"{math.ceil(memory / MEMORY_A_MACHINE):,}"])
    return made


def jump_rows(costs: Costs, *, before: int = 2, seconds: float = 150.0) -> list[list[str]]:
    """A load that jumps after 30 s from half of what ``before`` replicas can do to four times that.

    Returns:
        For each time that a replica takes to be ready: that time, the share of requests refused, how many seconds after
        the jump the last one was refused, the most replicas, and the 99th percentile of the latency in the last 30 s.
    """
    rows = []
    low = HALF * before * costs.most
    for ready in (2.0, 10.0, 60.0):
        outcome = open_loop(
            replace(costs, ready=ready),
            lambda time: low if time < 30.0 else 4.0 * low,
            seconds,
            replicas=before,
            scale=PodAutoscaler(target=costs.largest / 4.0, least=before),
        )
        total = len(outcome.latencies) + len(outcome.refused)
        rows.append(
            [
                f"{ready:.0f}",
                f"{len(outcome.refused) / total:.1%}",
                f"{max(outcome.refused, default=30.0) - 30.0:.0f}",
                f"{max(number for _, number in outcome.replicas)}",
                f"{1e3 * outcome.percentile(99.0, after=seconds - 30.0):.1f}",
            ]
        )
    return rows
