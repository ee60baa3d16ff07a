"""Costs of answers, against the processor time that they take."""

import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from murho.model.checkpoint.posterior import Posterior
from murho.model.encoding.encoder import Encoded
from murho.model.predictive.prediction import PredictOptions
from murho.model.runtime import at_most_threads
from murho.model.tables.schema import Columns, FeatureKind

PLAIN = PredictOptions()


def one_row(posterior: Posterior) -> Encoded:
    return Encoded.like(np.zeros((1, posterior.architecture.inputs), dtype=np.float32))


def test_a_plain_answer_costs_about_its_rows_times_draws_and_whatever_is_asked_besides_more(rent: Posterior) -> None:
    rent.warm_up()
    assert rent.cost(100_000, PLAIN) == pytest.approx(100_000 * 256, rel=0.5)
    asked: dict[str, Any]
    for asked in (
        {"percentiles": tuple(float(level) for level in range(1, 100))},
        {"thresholds": (1.0,) * 20},
        {"draws": True},
        {"mc_error": True},
        {"samples": 512},
        {"seed": 987654321},
    ):
        assert rent.cost(100, replace(PLAIN, **asked)) > rent.cost(100, PLAIN), asked


def test_new_draws_cost_until_they_are_kept(rent: Posterior) -> None:
    posterior, options = Posterior(rent.spec, rent.tensors), replace(PLAIN, seed=12)
    before = posterior.cost(1, options)
    posterior.predict_encoded(one_row(posterior), options)
    assert posterior.cost(1, options) < before
    assert posterior.cost(1, replace(options, samples=1000)) > posterior.cost(1, options)


def test_rows_without_draws_are_as_many_as_the_seconds_allow(rent: Posterior) -> None:
    few, many = (rent.rows_without_draws(1, 0, seconds) for seconds in (0.04, 4.0))
    assert many == pytest.approx(100 * few, rel=0.01)
    assert rent.rows_without_draws(1, 0, 0.0) == 1
    assert rent.rows_without_draws(4, 1, 4.0) < many


ROWS = 200
NEW_SEED = 10**6
"""Seeds from here on are new at every call."""
MANY = tuple(float(level) for level in np.linspace(0.5, 99.5, 100))
LOW = tuple(float(level) for level in np.geomspace(1e-11, 1e-6, 50))
EXTREME = (*LOW, *(100.0 - 1e3 * level for level in LOW))
INCOMPLETE = "rows of missing cells alone"
CASES: dict[str, tuple[int, PredictOptions]] = {
    "plain": (ROWS, PLAIN),
    INCOMPLETE: (ROWS, replace(PLAIN, percentiles=())),
    "one row": (1, PLAIN),
    "100 levels": (ROWS, replace(PLAIN, percentiles=MANY)),
    "100 levels far out": (ROWS, replace(PLAIN, percentiles=EXTREME)),
    "100 thresholds": (ROWS, replace(PLAIN, thresholds=MANY)),
    "the function, 100 levels and thresholds": (ROWS, replace(PLAIN, noise=False, percentiles=MANY, thresholds=MANY)),
    "a new seed, one row": (1, replace(PLAIN, seed=NEW_SEED)),
    "a new seed, one row, S = 4096": (1, replace(PLAIN, seed=NEW_SEED, samples=4096)),
}
"""Name → rows and options."""


def rows_of(posterior: Posterior, rows: int) -> Columns:
    """Rows within the training range."""
    generator = np.random.default_rng(0)
    columns: dict[str, NDArray[Any]] = {}
    for feature in posterior.schema.features:
        column: NDArray[Any]
        if feature.kind is FeatureKind.CATEGORICAL:
            column = np.array([feature.categories[row % len(feature.categories)] for row in range(rows)], dtype=object)
        else:
            column = generator.uniform(feature.minimum or 0.0, feature.maximum or 1.0, rows)
        columns[feature.name] = column
    return columns


def measured(posterior: Posterior, *, repetitions: int = 5) -> Iterator[tuple[str, float, float]]:
    """Return the cases, with the cost of each and the median of its processor time in seconds."""
    seeds = count(NEW_SEED)
    posterior.warm_up()
    for name, (rows, options) in CASES.items():
        columns, incomplete = rows_of(posterior, rows), 0
        if name == INCOMPLETE:
            columns = {name: np.full_like(of, None if of.dtype == object else np.nan) for name, of in columns.items()}
            incomplete = rows
        times, costs = [], []
        for number in range(repetitions + 1):
            asked = replace(options, seed=next(seeds)) if options.seed == NEW_SEED else options
            cost = posterior.cost(rows, asked, incomplete)
            start = time.process_time()
            posterior.predict(columns, asked)
            if number:  # the first call makes the draws that later ones have
                times.append(time.process_time() - start)
                costs.append(cost)
        yield name, costs[-1], statistics.median(times)


@pytest.mark.slow
def test_costs_are_within_a_factor_of_three_of_the_time(rent: Posterior) -> None:
    with at_most_threads(1):
        found = {name: seconds / cost for name, cost, seconds in measured(rent)}
    # The time of a unit is learned from what was computed: the middle of the cases.
    middle = sorted(found.values())[len(found) // 2]
    assert all(1.0 / 3.5 < unit / middle < 3.5 for unit in found.values()), {
        name: round(unit / middle, 2) for name, unit in found.items()
    }


def test_any_thread_may_ask_while_another_computes(rent: Posterior) -> None:
    posterior, stopped = Posterior(rent.spec, rent.tensors), threading.Event()

    def ask() -> None:
        while not stopped.is_set():
            posterior.cost(10, replace(PLAIN, seed=3))

    with ThreadPoolExecutor() as threads:
        asking = threads.submit(ask)
        for seed in range(100):
            posterior.predict_encoded(one_row(posterior), replace(PLAIN, seed=seed, samples=8))
        stopped.set()
        asking.result()
