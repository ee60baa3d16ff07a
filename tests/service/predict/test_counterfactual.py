"""What the counterfactual door refuses; what rows with nulls are charged. `tests/e2e/test_why.py` has answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from murho.model.predictive.prediction import PredictOptions
from tests.service.support import ROW, SCHEMA, AppClient, FakeModel, make_client

GOAL = {"mean": {"at_least": 20.0}}


@pytest.mark.parametrize(
    ("changes", "pointer", "said"),
    [
        ({"include": ["why"]}, "/include", "no key 'include' here; there are samples, seed, calibrated, timeout"),
        ({"goal": {}}, "/goal", "Say what the answer shall be: exceedance, mean, std"),
        ({"goal": {"mode": {}}}, "/goal/mode", "There is no key 'mode' here."),
        ({"goal": {"std": {"at_most": -1}}}, "/goal/std/at_most", "Expected a number above 0, not -1"),
        ({"goal": {"exceedance": {"at_least": 0.5}}}, "/goal/exceedance/threshold", "This is required."),
        ({"goal": {"probability": {"class": "a", "at_least": 0.5}}}, "/goal", "The target is a number"),
        ({"samples": 0, "goal": {"std": {"at_most": 1}}}, "/goal", "ask for samples"),
        ({"fixed": ["Orign"]}, "/fixed/0", "'Orign' is not a feature of this model; leave it out."),
        ({"inputs": [ROW]}, "/inputs", "Expected one row"),
        ({"inputs": {**ROW, "Weight": "heavy"}}, "/inputs/Weight", "number"),
    ],
)
def test_what_can_not_be_asked_is_said_with_its_place(
    client: AppClient, changes: dict[str, Any], pointer: str, said: str
) -> None:
    response = client.post("/models/cars/counterfactual", {"inputs": ROW, "goal": GOAL, **changes})
    (problem,) = response.json()["errors"]
    assert response.status_code == 422
    assert problem["pointer"] == pointer
    assert said in problem["message"]


class Costly(FakeModel):
    """Notes the rows with cells to impute that each answer is charged for."""

    charged: list[int]

    def cost(self, rows: int, options: PredictOptions, incomplete: int = 0) -> float:
        self.charged.append(incomplete)
        return super().cost(rows, options, incomplete)


def test_the_imputed_copies_of_rows_with_nulls_are_charged() -> None:
    features = tuple(replace(each, imputed=each.name == "Year") for each in SCHEMA.features)
    model = Costly()
    model.schema, model.charged = replace(SCHEMA, features=features), []
    with make_client(model) as client:
        response = client.post("/predict", {"inputs": [ROW, {**ROW, "Year": None}]})
        assert response.status_code == 200, response.text
    assert set(model.charged) == {1}
