"""The screen before permutation importance: which features it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from murho.model.evaluation.importance import choose_rows, permutation_importance, screened_features
from murho.model.evaluation.judging import judge_columns
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table, target_from_table
from tests.model.conftest import make_table
from tests.model.rooms import rooms_table

if TYPE_CHECKING:
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.evaluation.numbers import JudgedNumbers


def test_few_features_are_all_kept_in_the_order_of_the_schema(rent: Posterior) -> None:
    columns = columns_from_table(make_table(rows=40, seed=3), rent.schema)
    assert screened_features(rent, columns, 9) == [feature.name for feature in rent.schema.features]


def test_those_are_kept_that_matter_most_by_draws_too(rent: Posterior) -> None:
    columns = columns_from_table(make_table(rows=200, seed=3), rent.schema)
    judged = permutation_importance(rent, columns, repeats=2)["features"]
    by_draws = sorted(judged, key=lambda feature: -feature["mean"]["value"])
    assert screened_features(rent, columns, 1) == [by_draws[0]["name"]]
    assert set(screened_features(rent, columns, 2)) == {feature["name"] for feature in by_draws[:2]}


def test_a_column_of_equal_cells_is_left_out_first(rooms: Posterior) -> None:
    columns = columns_from_table(rooms_table(rows=40, seed=4), rooms.schema)
    names = [feature.name for feature in rooms.schema.features]
    for name in names:
        kept = screened_features(rooms, {**columns, name: np.repeat(columns[name][:1], 40)}, len(names) - 1)
        assert set(kept) == set(names) - {name}


def test_only_the_named_features_are_judged(rent: Posterior) -> None:
    columns = columns_from_table(make_table(rows=40, seed=3), rent.schema)
    found = permutation_importance(rent, columns, repeats=1, samples=16, features=["size", "lift"])
    assert [feature["name"] for feature in found["features"]] == ["size", "lift"]


def test_it_approaches_the_mean_over_all_pairs_of_rows(rent: Posterior) -> None:
    """Row i has the cell of row k with probability 1/n in a shuffle: the expectation is a mean over n^2 rows."""
    count = 8
    columns = columns_from_table(make_table(rows=count, seed=3), rent.schema)
    rows, cells = (part.ravel() for part in np.indices((count, count)))
    pairs = {name: column[rows] for name, column in columns.items()} | {"size": columns["size"][cells]}
    options = PredictOptions(percentiles=())
    changes = rent.predict(pairs, options).mean - rent.predict(columns, options).mean[rows]
    size = permutation_importance(rent, columns, repeats=60)["features"][0]
    assert size["name"] == "size"
    assert size["mean"]["value"] == pytest.approx(np.sqrt(np.mean(changes**2)), rel=0.2)


def test_of_two_rows_scores_and_answers_move_as_they_do_when_the_cells_are_swapped(rent: Posterior) -> None:
    """A shuffle of two rows swaps their cells or leaves them: both measures have the same share of swaps."""
    table = make_table(rows=2, seed=3)
    columns, targets = columns_from_table(table, rent.schema), target_from_table(table, rent.schema.target)
    swapped = columns | {"size": columns["size"][::-1]}
    options = PredictOptions(percentiles=())
    square = np.mean((rent.predict(swapped, options).mean - rent.predict(columns, options).mean) ** 2)
    plain, other = (cast("JudgedNumbers", judge_columns(rent, of, targets)).values["crps"] for of in (columns, swapped))
    size = permutation_importance(rent, columns, targets, repeats=5)["features"][0]
    share = size["mean"]["value"] ** 2 / square
    assert round(5 * share, 6) in (1.0, 2.0, 3.0, 4.0)
    assert size["crps"]["value"] == pytest.approx(share * np.mean(other - plain), rel=1e-5)


def test_a_column_of_equal_cells_has_none(rent: Posterior) -> None:
    table = make_table(rows=40, seed=3)
    columns = columns_from_table(table, rent.schema)
    columns["district"][:] = columns["district"][0]
    found = permutation_importance(rent, columns, target_from_table(table, rent.schema.target), repeats=2)
    assert found["measures"] == ["mean", "crps", "epistemic_std"]
    (district,) = (feature for feature in found["features"] if feature["name"] == "district")
    for measure in found["measures"]:
        assert district[measure] == {"value": 0.0, "standard_error": 0.0}


def test_standard_errors_are_those_of_other_rows(rent: Posterior) -> None:
    columns = columns_from_table(make_table(rows=800, seed=8), rent.schema)
    tries = [
        permutation_importance(
            rent, {name: part[start : start + 40] for name, part in columns.items()}, repeats=2, seed=start
        )["features"][0]["mean"]
        for start in range(0, 800, 40)
    ]
    spread = np.std([found["value"] for found in tries], ddof=1)
    assert 0.5 < np.mean([found["standard_error"] for found in tries]) / spread < 2.0


def test_of_many_rows_some_are_taken_and_the_seed_decides(rent: Posterior) -> None:
    columns = columns_from_table(make_table(rows=60, seed=8), rent.schema)
    first, again, other = (permutation_importance(rent, columns, repeats=1, most_rows=30, seed=s) for s in (1, 1, 2))
    assert first["rows"] == 30
    assert first == again
    assert first != other


def test_classes_have_measures_of_their_own(rooms: Posterior) -> None:
    table = rooms_table(rows=40, seed=4)
    columns = columns_from_table(table, rooms.schema)
    labels = np.zeros(40)
    found = permutation_importance(rooms, columns, labels, repeats=1)
    assert found["measures"] == ["probabilities", "log_loss", "epistemic_entropy"]
    most = max(feature["probabilities"]["value"] for feature in found["features"])
    assert 0.05 < most <= 2**0.5  # the largest distance of two distributions


def test_rows_that_are_chosen_beforehand_give_the_same_numbers(rent: Posterior) -> None:
    """Then the cells of the other rows need not be read."""
    columns = columns_from_table(make_table(rows=40, seed=3), rent.schema)
    generator = np.random.default_rng(7)
    chosen = choose_rows(40, 10, generator)
    few = {name: column[chosen] for name, column in columns.items()}
    found = permutation_importance(rent, few, repeats=1, most_rows=10, seed=generator, samples=4)
    assert found == permutation_importance(rent, columns, repeats=1, most_rows=10, seed=7, samples=4)
