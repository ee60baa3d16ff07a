"""The simulation of replicas against closed forms of queueing theory."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.scale_parts.autoscaler import PodAutoscaler
from benchmarks.scale_parts.simulation import Costs, closed_loop, open_loop


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_single_requests_wait_as_pollaczek_and_khinchine_say(load: float) -> None:
    """M/D/1 with service s: the mean wait is ``load s / (2 (1 - load))``."""
    costs = Costs(fixed=0.004, each=0.006, largest=1)
    outcome = open_loop(costs, lambda _: load / 0.01, 400.0)
    wait = np.mean(outcome.latencies) - 0.01
    assert wait == pytest.approx(load * 0.01 / (2.0 * (1.0 - load)), rel=0.1)
    assert outcome.busy / 400.0 == pytest.approx(load, rel=0.05)


def test_one_client_gets_a_flight_of_its_own() -> None:
    assert closed_loop(Costs(fixed=0.004, each=0.006), 1) == pytest.approx(100.0)


def test_many_clients_share_the_fixed_cost() -> None:
    costs = Costs(fixed=0.01, each=0.001)
    rates = [closed_loop(costs, clients) for clients in (2, 32, 1_000)]
    assert rates == sorted(rates)
    # After the first flight all 32 come back at once, and share the next one.
    assert rates[1] == pytest.approx(32 / costs.flight(32), rel=0.01)
    assert rates[2] < 1.0 / costs.each


def test_more_than_a_replica_can_do_is_refused_once_its_queue_is_full() -> None:
    costs = Costs(fixed=0.001, each=0.001, largest=8, queue=50)
    outcome = open_loop(costs, lambda _: 2.0 * costs.most, 20.0)
    answered, refused = len(outcome.latencies), len(outcome.refused)
    assert answered / 20.0 == pytest.approx(costs.most, rel=0.05)
    assert refused / (answered + refused) == pytest.approx(0.5, abs=0.03)
    assert max(outcome.latencies) <= (50 / 8 + 2) * costs.flight(8)


def test_every_request_is_answered_or_refused_whatever_the_number_of_replicas_does() -> None:
    costs = Costs(fixed=0.002, each=0.002, queue=20, ready=5.0)
    numbers = iter([4, 1, 6, 2, 3, 1] * 10)
    outcome = open_loop(costs, lambda _: 400.0, 30.0, scale=lambda *_: next(numbers), every=1.0)
    still = open_loop(costs, lambda _: 400.0, 30.0, replicas=4)
    assert len(outcome.latencies) + len(outcome.refused) == pytest.approx(len(still.latencies), rel=0.05)
    assert min(number for _, number in outcome.replicas) >= 1
    assert max(number for _, number in outcome.replicas) > 1


def test_two_choices_make_queues_even() -> None:
    costs = Costs(fixed=0.0, each=0.01, largest=1)
    alone = open_loop(costs, lambda _: 80.0, 60.0)
    shared = open_loop(costs, lambda _: 800.0, 60.0, replicas=10)
    assert shared.percentile(99.0) < 0.7 * alone.percentile(99.0)


def test_the_autoscaler_follows_the_rule_of_kubernetes() -> None:
    scaler = PodAutoscaler(target=4.0, most=40, window=60.0)
    assert scaler(0.0, [4, 4]) == 2
    assert scaler(15.0, [4, 4, 5]) == 3  # within the tolerance
    assert scaler(30.0, [6, 6, 6]) == 5  # ceil(3 * 1.5)
    assert scaler(45.0, [40] * 10) == 20  # at most twice as many at a time
    assert scaler(60.0, [0] * 20) == 20  # 20 were wanted within the window
    assert scaler(120.0, [0] * 20) == 1
