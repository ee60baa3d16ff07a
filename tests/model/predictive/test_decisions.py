"""Decisions of a posterior that is known in closed form."""

import math

import numpy as np
import pytest

from murho.model.errors import OptionError
from murho.model.predictive.decisions import Actions, DecideOptions, decide, draw_numbers
from murho.model.predictive.prediction import ClassPrediction, Prediction, PredictOptions
from murho.model.tables.schema import Target

DRAWS = 100_000
NAMES = ("a", "b", "c")


def _slope() -> np.ndarray:
    return np.random.default_rng(0).normal(1.0, 2.0, DRAWS)


def _linear(places: np.ndarray, noise: float = 0.5) -> Prediction:
    """Draws of f(x) = w x with w ~ N(1, 2^2), at a place for each row."""
    drawn = places[:, None] * _slope()
    spread = 2.0 * np.abs(places)
    return Prediction(
        DRAWS,
        0,
        calibrated=True,
        extrapolation=np.zeros(len(places), dtype=bool),
        mean=places.copy(),
        std=np.hypot(spread, noise),
        epistemic_std=spread,
        aleatoric_std=np.full(len(places), noise),
        draws=drawn,
        exceedance=np.full((len(places), 1), 0.95) * (places[:, None] > 0.0),
    )


def _phi(score: float) -> float:
    return 0.5 * (1.0 + math.erf(score / math.sqrt(2.0)))


def test_thompson_has_the_propensity_of_the_posterior() -> None:
    # Actions at 1, 0 and -1 with costs: the best one is 1 above a slope, -1 below another, and 0 never.
    places, costs = np.tile([1.0, 0.0, -1.0], 2), np.array([0.5, 1.0, 0.0])
    numbers = np.array([0, 1])
    found = decide(_linear(places), Actions(NAMES, costs), DecideOptions(), numbers)
    # w - 0.5 > -w where w > 0.25, and nothing is ever better than both.
    first = _phi((1.0 - 0.25) / 2.0)
    assert found.probability_best[0] == pytest.approx([first, 0.0, 1.0 - first], abs=4 * 0.5 / np.sqrt(DRAWS))
    assert (found.probability_best[0] == found.probability_best[1]).all()
    own = found.probability_best[[0, 1], found.choice]
    assert (found.propensity == own).all()
    slope = _slope()[numbers]
    assert (found.choice == np.where(slope > 0.25, 0, 2)).all()
    every = decide(_linear(np.tile([1.0, 0.0, -1.0], 1)), Actions(NAMES, costs), DecideOptions(), np.array([5]))
    assert every.mean[0] == pytest.approx([0.5, -1.0, -1.0])


def test_a_sure_choice_has_propensity_1() -> None:
    found = decide(_linear(np.array([1.0])), Actions(("only",), np.zeros(1)), DecideOptions(), np.array([0]))
    assert found.propensity.tolist() == found.probability_best[0].tolist() == [1.0]


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        (DecideOptions("greedy"), "a"),
        (DecideOptions("greedy", "min"), "c"),
        (DecideOptions("ucb", width=3.0), "c"),
        (DecideOptions("threshold", threshold=0.0, at_least=0.9), "a"),
        (DecideOptions("threshold", threshold=0.0, at_least=0.96), "unsure"),
        (DecideOptions("threshold", "min", threshold=0.0), "c"),
    ],
)
def test_policies(options: DecideOptions, chosen: str) -> None:
    options.check(Target("y", None), Actions(NAMES, np.zeros(3)))
    answer = _linear(np.array([1.0, 0.5, -1.5]))
    found = decide(answer, Actions(NAMES, np.zeros(3)), options, np.zeros(1, dtype=np.int64))
    assert found.chosen == [chosen]
    assert found.propensity.tolist() == [1.0]


def _classes(contexts: int) -> ClassPrediction:
    """Two classes whose probability is uniform over draws, with one row a context."""
    drawn = np.random.default_rng(0).random((contexts, DRAWS))
    share = drawn.mean(axis=1)
    return ClassPrediction(
        DRAWS,
        0,
        calibrated=True,
        classes=("edible", "poisonous"),
        prediction=np.zeros(contexts, dtype=np.int64),
        probabilities=np.stack([share, 1.0 - share], axis=1),
        epistemic_std=np.full((contexts, 2), drawn.std()),
        draws=np.stack([drawn, 1.0 - drawn], axis=2),
        extrapolation=np.zeros(contexts, dtype=bool),
        outlier=np.zeros(contexts, dtype=bool),
    )


def test_utilities_of_classes() -> None:
    actions = Actions(("eat", "pass"), np.array([1.0, 0.0]), np.array([[5.0, -35.0], [0.0, 0.0]]))
    found = decide(_classes(2), actions, DecideOptions(), np.array([0, 1]))
    # 5 p - 35 (1 - p) - 1 > 0 where p > 0.9.
    assert found.probability_best == pytest.approx(np.array([[0.1, 0.9]] * 2), abs=0.004)
    assert found.mean[0] == pytest.approx([-16.0, 0.0], abs=0.1)
    assert found.std[0] == pytest.approx([20.0, 0.0], abs=0.1)
    assert found.epistemic_std[0] == pytest.approx([40.0 / np.sqrt(12.0), 0.0], abs=0.1)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (DecideOptions("random"), "policy"),
        (DecideOptions(goal="large"), "goal"),
        (DecideOptions("ucb", width=-1.0), "width"),
        (DecideOptions(threshold=1.0), "threshold"),
        (DecideOptions("threshold"), "threshold"),
        (DecideOptions("threshold", threshold=1.0, at_least=1.0), "at_least"),
        (DecideOptions(of=PredictOptions(0)), "samples"),
        (DecideOptions("greedy", risk=0.05), "abstain"),
    ],
)
def test_what_is_refused(options: DecideOptions, named: str) -> None:
    with pytest.raises(OptionError, match=f"^{named}: "):
        options.check(Target("y", None), Actions(NAMES, np.zeros(3)))


def test_chosen_as_often_as_the_propensity_says() -> None:
    numbers = draw_numbers(DRAWS, DRAWS, seed=3)
    slope = _slope()
    assert np.mean(slope[numbers] > 0.25) == pytest.approx(_phi(0.375), abs=0.008)
