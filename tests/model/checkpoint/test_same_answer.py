"""The answer for a row is the same whatever rows are with it, in any order, tiles and number of threads."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from murho.model.checkpoint.posterior import Posterior
from murho.model.predictive.prediction import PredictOptions, Question
from murho.model.tables.schema import FeatureKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.model.tables.schema import Columns

ROWS, TO, ERRORS_TO = 200, 1e-5, 1e-3
NUMBERS = (
    PredictOptions(samples=64, draws=True, mc_error=True, thresholds=(500.0,), percentiles=(0.01, 5.0, 50.0, 99.0)),
    # With 41 draws these percentiles are function values of draws.
    PredictOptions(samples=41, draws=True, mc_error=True, noise=False),
    PredictOptions(samples=64, calibrated=False),
)
CLASSES = (
    PredictOptions(samples=64, draws=True, mc_error=True, percentiles=(0.5, 33.0, 99.9)),
    PredictOptions(samples=41, draws=True, calibrated=False),
)


def rows_of(posterior: Posterior) -> Columns:
    """Rows of every kind: like the training rows, up to 10,000 times their range away, and with missing cells."""
    generator, columns = np.random.default_rng(0), {}
    for feature in posterior.schema.features:
        if feature.kind is FeatureKind.CATEGORICAL:
            columns[feature.name] = generator.choice(np.array(feature.categories, dtype=object), ROWS)
            continue
        low, high = feature.minimum or 0.0, feature.maximum or 0.0
        away = generator.choice([-1.0, 1.0], ROWS) * 10.0 ** generator.uniform(-1.0, 4.0, ROWS) * (high - low)
        column = generator.uniform(low, high, ROWS) + np.where(generator.random(ROWS) < 0.4, away, 0.0)
        columns[feature.name] = np.where(generator.random(ROWS) < 0.04, np.nan, column)
    return columns


def assert_same(one: Any, other: Any, where: str = "", spread: np.ndarray | None = None, to: float = TO) -> None:
    """Within the contract: 1e-5 of the larger of |value| and std (of classes: of the probability's epistemic_std)."""
    if where == "":
        spread = other.epistemic_std if hasattr(other, "classes") else other.std
    for field in fields(other):
        actual, expected = getattr(one, field.name), getattr(other, field.name)
        if is_dataclass(expected):
            assert_same(actual, expected, field.name, spread, ERRORS_TO)
        elif isinstance(expected, np.ndarray) and expected.dtype.kind == "f":
            assert spread is not None
            of_value = spread if spread.ndim == 1 or expected.ndim > 1 else spread.max(axis=1)
            if field.name == "draws" and spread.ndim == 2:
                of_value = of_value[:, np.newaxis]
            of_value = of_value.reshape(*of_value.shape, *(1,) * (expected.ndim - of_value.ndim))
            apart = np.abs(actual - expected) / np.maximum(np.abs(expected), of_value)
            assert apart.max(initial=0.0) <= to, (where, field.name, apart.max())
        else:
            np.testing.assert_array_equal(actual, expected, field.name)


@pytest.fixture(params=["auto", "torch"])
def reload(request: pytest.FixtureRequest) -> Callable[[Posterior], Posterior]:
    return lambda loaded: Posterior(loaded.spec, loaded.tensors, engine=str(request.param))


@pytest.mark.parametrize("which", ["rent", "rooms"])
def test_rows_alone_and_in_any_crowd_have_the_same_answers(
    which: str, reload: Callable[[Posterior], Posterior], request: pytest.FixtureRequest
) -> None:
    posterior = reload(request.getfixturevalue(which))
    columns = rows_of(posterior)
    all_options = NUMBERS if which == "rent" else CLASSES
    alone = [
        [
            posterior.predict({name: column[row : row + 1] for name, column in columns.items()}, options)
            for row in range(ROWS)
        ]
        for options in all_options
    ]
    before = torch.get_num_threads()

    @settings(deadline=None, max_examples=8, database=None)
    @given(
        shuffle=st.integers(0, 2**32),
        rows=st.integers(2, ROWS),
        threads=st.integers(1, 2),
        tile_values=st.sampled_from([1, 500, 2**19]),
        number=st.integers(0, len(all_options) - 1),
    )
    @example(0, ROWS, 1, 2**19, 0)
    @example(0, ROWS, 1, 2**19, 1)
    def compare(shuffle: int, rows: int, threads: int, tile_values: int, number: int) -> None:
        torch.set_num_threads(threads)
        posterior.tile_values = tile_values
        order = np.random.default_rng(shuffle).permutation(ROWS)[:rows]
        crowd = {name: column[order] for name, column in columns.items()}
        questions = [Question(slice(row, row + 1), all_options[number]) for row in range(rows)]
        for row, answer in zip(order, posterior.predict_questions(crowd, questions), strict=True):
            assert_same(answer, alone[number][row])

    try:
        compare()
    finally:
        torch.set_num_threads(before)
