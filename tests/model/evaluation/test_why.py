"""Shapley shares of games with a known solution, and of a trained model; what missing cells are worth."""

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import OptionError
from murho.model.evaluation.why import (
    CLASS_MEASURES,
    PredictionRequests,
    Why,
    answer_requests,
    measures_of,
    rows_to_label,
    why,
    worth_asking,
)
from murho.model.predictive.prediction import Prediction, PredictOptions
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from murho.model.tables.schema_inference import columns_from_table
from tests.model.conftest import make_table
from tests.model.rooms import rooms_table

Game = Callable[[NDArray[np.bool_], NDArray[np.float64]], NDArray[np.float64]]


def schema_of(features: int, *, imputed: bool = True) -> Schema:
    kinds = [
        Feature(f"x{place}", FeatureKind.NUMERIC, None, False, -9.0, 9.0, (), imputed=imputed)
        for place in range(features)
    ]
    return Schema(tuple(kinds), Target("y", None), {})


def shares_of(game: Game, cells: NDArray[np.float64]) -> tuple[Why, NDArray[np.float64]]:
    """Return the shares of a game of the known cells and their values ``[B, F]``, and what all cells are worth."""
    columns = dict(zip((f"x{place}" for place in range(cells.shape[1])), cells.T, strict=True))

    def play(columns: Any) -> Prediction:
        values = np.stack([*columns.values()], axis=1)
        worth = game(~np.isnan(values), np.nan_to_num(values))
        std = np.sqrt(np.abs(worth))
        return Prediction(1, 0, False, worth, std, std, std, extrapolation=np.zeros(len(worth), dtype=bool))

    asking: PredictionRequests[Why] = why(schema_of(cells.shape[1]), columns, play(columns), PredictOptions())
    try:
        asked, _ = next(asking)
        while True:
            asked, _ = asking.send(play(asked))
    except StopIteration as end:
        return end.value, play(columns).mean


games = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@settings(deadline=None)
@given(st.integers(1, 7), games)
def test_shares_are_means_over_all_orders(features: int, source: np.random.Generator) -> None:
    worth, cells = source.normal(size=2**features), source.normal(size=(2, features))
    codes = 1 << np.arange(features)
    found, whole = shares_of(lambda known, _: worth[known @ codes], cells)
    expected = np.zeros(features)
    orders = list(permutations(range(features)))
    for order in orders:
        places = np.cumsum([0, *codes[list(order)]])
        expected[list(order)] += np.diff(worth[places]) / len(orders)
    np.testing.assert_allclose(found.shares["mean"], np.tile(expected, (2, 1)), atol=1e-9)
    np.testing.assert_allclose(found.baseline["mean"] + found.shares["mean"].sum(axis=1), whole, atol=1e-9)
    assert found.errors is None


@settings(deadline=None, max_examples=20)
@given(st.integers(3, 40), games)
def test_sampled_sets_keep_what_defines_the_shares(features: int, source: np.random.Generator) -> None:
    """x0 x1 x2 is shared in three, x3 alone adds, twins share equally, a dummy has nothing, and all add up."""
    cells = source.normal(size=(3, features + 3))
    cells[0, 3] = np.nan
    cells[:, 1] = cells[:, 0]
    weights = source.normal(size=features + 3)
    weights[-1], weights[:3] = 0.0, 0.0

    def game(known: NDArray[np.bool_], values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values @ weights + values[:, 0] * values[:, 1] * values[:, 2]

    found, whole = shares_of(game, cells)
    shares = found.shares["mean"]
    error = 1e-9 + (0.0 if found.errors is None else 6.0 * found.errors["mean"])
    expected = np.nan_to_num(cells) * weights
    expected[:, :3] += np.prod(cells[:, :3], axis=1, keepdims=True) / 3.0
    assert (np.abs(shares - expected) <= error + 0.02 * np.abs(expected[:, :3]).max()).all()
    assert shares[0, 3] == 0.0
    np.testing.assert_allclose(found.baseline["mean"] + shares.sum(axis=1), whole, atol=1e-9)
    for name in ("epistemic_variance", "aleatoric_variance"):
        total = found.baseline[name] + found.shares[name].sum(axis=1)
        np.testing.assert_allclose(total, np.abs(whole), rtol=1e-9, atol=1e-9)


def test_a_set_is_worth_what_the_model_answers_with_the_other_cells_missing(rent: Posterior, rooms: Posterior) -> None:
    """Shares and baseline add up to the answer, numbers and classes alike; two cells have their two orders."""
    for posterior, table in ((rent, make_table(rows=6, seed=3)), (rooms, rooms_table(rows=6, seed=3))):
        columns = columns_from_table(table, posterior.schema)
        names = list(columns)
        nothing = {name: np.full(6, None if of.dtype == object else np.nan) for name, of in columns.items()}
        columns |= {name: nothing[name] for name in names[2:]}
        options = PredictOptions(samples=64)
        answer = posterior.predict(columns, options)
        found = answer_requests(why(posterior.schema, columns, answer, options), posterior)
        factor: Any = 1.0
        if answer.classes is None:  # sets have raw answers, and calibration counts as a factor of the row
            options = replace(options, calibrated=False)
            factor = (answer.std / posterior.predict(columns, options).std) ** 2
        classes = None if answer.classes is None else answer.prediction
        worth = []
        for gone in ((), (0,), (1,), (0, 1)):
            empty = {names[place]: nothing[names[place]] for place in gone}
            worth.append(measures_of(posterior.predict({**columns, **empty}, options), classes))
        for name, shares in found.shares.items():
            scale = 1.0 if name in ("mean", *CLASS_MEASURES) else factor
            whole, without_0, without_1, none = (scale * each[name] for each in worth)
            np.testing.assert_allclose(found.baseline[name], none, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(found.baseline[name] + shares.sum(axis=1), whole, rtol=1e-5, atol=1e-6)
            expected = 0.5 * (whole - without_0 + without_1 - none)
            np.testing.assert_allclose(shares[:, 0], expected, rtol=1e-3, atol=1e-4 * np.abs(whole).max())


def test_a_model_without_imputation_says_so() -> None:
    with pytest.raises(OptionError, match=r"missing cells in 'x0'.*--missing refuse"):
        next(
            why(
                schema_of(2, imputed=False),
                {},
                Prediction(0, 0, False, np.zeros(1), extrapolation=np.zeros(1, dtype=bool)),
                PredictOptions(),
            )
        )


def test_a_missing_cell_is_worth_the_fall_of_the_mean_variance(rent: Posterior) -> None:
    columns = columns_from_table(make_table(rows=8, seed=5), rent.schema)
    columns["size"][:4] = np.nan
    options = PredictOptions()
    answer = rent.predict(columns, options)
    found = answer_requests(worth_asking(rent.encoder.distribution, rent.schema, columns, answer, options), rent)
    falls = [{cell["feature"]: cell["fall"] for cell in of_row} for of_row in found]
    assert all("size" in of_row for of_row in falls[:4])
    assert all("size" not in of_row for of_row in falls[4:])
    assert all(0.0 < of_row["size"] < square for of_row, square in zip(falls[:4], answer.std**2, strict=False))


def test_rows_to_label_are_those_of_a_gaussian_posterior() -> None:
    """Of a line through noise: draws of a slope and an intercept, whose posterior after labels is known."""
    generator, places = np.random.default_rng(0), np.linspace(-1.0, 2.0, 13)
    weights = generator.normal(size=(400, 2))
    weights -= weights.mean(axis=0)
    design = np.stack([np.ones(13), places], axis=1)
    covariance, noise = weights.T @ weights / 400, np.linspace(0.3, 2.0, 13)[::-1]
    chosen, left = rows_to_label(design @ weights.T, noise, 3)
    whole = np.trace(design @ covariance @ design.T)
    for turn, (row, share) in enumerate(zip(chosen, left, strict=True)):
        doubt = np.einsum("bf,fg,bg->b", design, covariance, design) + noise
        doubt[chosen[:turn]] = 0.0
        assert row == doubt.argmax()
        gain = covariance @ design[row] / (design[row] @ covariance @ design[row] + noise[row])
        covariance = covariance - np.outer(gain, design[row] @ covariance)
        assert share == pytest.approx(np.trace(design @ covariance @ design.T) / whole, rel=1e-6)
