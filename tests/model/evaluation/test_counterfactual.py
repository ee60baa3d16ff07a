"""The nearest rows that reach a goal: of a plane, where they are known, and of a trained classifier."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.model.checkpoint.posterior import Posterior
from murho.model.errors import OptionError
from murho.model.evaluation.counterfactual import MOST_ROWS, Goal, counterfactuals
from murho.model.evaluation.why import answer_requests
from murho.model.predictive.prediction import Prediction
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from murho.model.tables.schema_inference import columns_from_table
from tests.model.rooms import CLASSES, rooms_table

PLANE = Schema(
    (
        *(Feature(name, FeatureKind.NUMERIC, None, False, 0.0, 10.0, ()) for name in "abc"),
        Feature("kind", FeatureKind.CATEGORICAL, None, False, None, None, ("left", "right")),
    ),
    Target("y", None),
    {},
)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(0.5, 12.0))
def test_of_a_plane_the_steepest_feature_moves_just_far_enough(seed: int, rise: float) -> None:
    """Gower's distance counts all numbers alike, so the nearest row changes the feature of the largest weight."""
    generator = np.random.default_rng(seed)
    weights = np.array([2.0, 1.0, -0.5])
    start = generator.uniform(1.05, 3.0, 3)
    row: dict[str, Any] = {name: start[place : place + 1] for place, name in enumerate("abc")}
    row["kind"] = np.array(["left"], dtype=object)
    asked = 0

    def plane(columns: Any) -> Prediction:
        nonlocal asked
        asked += len(columns["a"])
        return Prediction(
            1,
            0,
            False,
            np.stack([columns[name] for name in "abc"], axis=1) @ weights,
            extrapolation=np.zeros(len(columns["a"]), dtype=bool),
        )

    goal = Goal.model_validate({"mean": {"at_least": float(start @ weights + rise)}})
    asking = counterfactuals(PLANE, None, row, goal, goal.options(PLANE))
    try:
        columns, _ = next(asking)
        while True:
            columns, _ = asking.send(plane(columns))
    except StopIteration as end:
        found = end.value
    assert (plane(found.columns).mean >= start @ weights + rise).all()
    assert found.distances[0] == pytest.approx(rise / 2.0 / 10.0 / 4.0, rel=0.05, abs=2e-3)
    assert (np.diff(found.distances) >= 0.0).all()
    assert asked <= MOST_ROWS


def test_a_class_becomes_likely_within_the_training_rows(rooms: Posterior) -> None:
    columns = columns_from_table(rooms_table(rows=20, seed=3), rooms.schema)
    goal = Goal.model_validate({"probability": {"class": CLASSES[0], "at_least": 0.8}})
    options = goal.options(rooms.schema)
    far = rooms.predict(columns, options).probabilities[:, 0].argmin()
    row = {name: column[far : far + 1] for name, column in columns.items()}
    asking = counterfactuals(rooms.schema, rooms.encoder.distribution, row, goal, options, fixed=["lift"], count=2)
    found = answer_requests(asking, rooms)
    again = rooms.predict(found.columns, options)
    assert (again.probabilities[:, 0] >= 0.8).all()
    assert not again.outlier.any()
    assert (found.columns["lift"] == row["lift"]).all()
    nothing = counterfactuals(rooms.schema, None, row, goal, options, fixed=list(columns))
    assert not len(answer_requests(nothing, rooms).distances)


@pytest.mark.parametrize(
    ("goal", "said"),
    [({"mean": {"at_least": 1.0}}, "probability"), ({"probability": {"class": "loft", "at_least": 0.5}}, "no class")],
)
def test_goals_of_another_target_are_refused(rooms: Posterior, goal: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        Goal.model_validate(goal).options(rooms.schema)
