"""The screen before permutation importance: which features it keeps."""

from typing import cast

import numpy as np
import pytest

from murho.model.checkpoint.posterior import Posterior
from murho.model.evaluation.importance import permutation_importance, screen_features
from murho.model.evaluation.judging import judge_columns
from murho.model.evaluation.number_scores import JudgedNumbers
from murho.model.predictive.prediction import PredictOptions
from murho.model.tables.schema_inference import columns_from_table, target_from_table
from tests.model.conftest import make_table
from tests.model.rooms import rooms_table


def test_those_are_kept_that_matter_most_by_draws_too(rent: Posterior) -> None:
    columns = columns_from_table(make_table(rows=200, seed=3), rent.schema)
    judged = permutation_importance(rent, columns, repeats=2)["features"]
    by_draws = sorted(judged, key=lambda feature: -feature["mean"]["value"])
    assert screen_features(rent, columns, 1) == [by_draws[0]["name"]]
    assert set(screen_features(rent, columns, 2)) == {feature["name"] for feature in by_draws[:2]}


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
    targets = target_from_table(table, rent.schema.target)
    found = permutation_importance(rent, columns, targets, repeats=2, most_rows=30)
    assert found["rows"] == 30
    assert found["measures"] == ["mean", "crps", "epistemic_std"]
    (district,) = (feature for feature in found["features"] if feature["name"] == "district")
    for measure in found["measures"]:
        assert district[measure] == {"value": 0.0, "standard_error": 0.0}


def test_classes_have_measures_of_their_own(rooms: Posterior) -> None:
    table = rooms_table(rows=40, seed=4)
    columns = columns_from_table(table, rooms.schema)
    labels = np.zeros(40)
    found = permutation_importance(rooms, columns, labels, repeats=1)
    assert found["measures"] == ["probabilities", "log_loss", "epistemic_entropy"]
    most = max(feature["probabilities"]["value"] for feature in found["features"])
    assert 0.05 < most <= 2**0.5  # the largest distance of two distributions
