"""The distribution of classes says what the posterior says, in the caller's order of the classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from murho.model.predictive.prediction import PredictOptions
from murho.model.python.answers import ClassDistribution
from murho.model.tables.schema_inference import columns_from_table
from tests.model.python.conftest import asked, flats

if TYPE_CHECKING:
    from collections.abc import Callable

    from murho.model.checkpoint.posterior import Posterior


def test_it_says_what_the_posterior_says(districts: ClassDistribution, quarter: Posterior) -> None:
    options = PredictOptions(64, percentiles=(5.0, 95.0), coverage=0.8, draws=True)
    answer = quarter.predict(columns_from_table(flats(), quarter.schema), options)
    assert districts.classes.tolist() == ["east", "north", "west"]
    np.testing.assert_array_equal(districts.probabilities, answer.probabilities)
    np.testing.assert_array_equal(districts.epistemic(), answer.epistemic_std)
    np.testing.assert_array_equal(districts.entropy(), answer.entropy)
    np.testing.assert_array_equal(districts.epistemic_entropy(), answer.epistemic_entropy)
    np.testing.assert_allclose(np.stack(districts.interval(), axis=-1), answer.percentiles)
    np.testing.assert_array_equal(districts.prediction_set(0.8), answer.prediction_set)
    np.testing.assert_array_equal(districts.functions(), answer.draws)
    assert districts.calibrated == answer.calibrated


def test_probabilities_and_entropies_add_up(districts: ClassDistribution) -> None:
    probabilities = districts.probabilities
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_allclose(districts.entropy(), -(probabilities * np.log(probabilities)).sum(axis=1))
    np.testing.assert_allclose(districts.aleatoric_entropy() + districts.epistemic_entropy(), districts.entropy())
    np.testing.assert_array_equal(districts.probability("west"), probabilities[:, 2])
    np.testing.assert_array_equal(districts.mode(), districts.classes[probabilities.argmax(axis=1)])


def test_classes_may_have_other_names_and_another_order(quarter: Posterior, districts: ClassDistribution) -> None:
    turned = ClassDistribution(*asked(quarter), np.array([30, 20, 10]), np.array([2, 0, 1]))
    np.testing.assert_array_equal(turned.probabilities, districts.probabilities[:, [2, 0, 1]])
    np.testing.assert_array_equal(turned.probability(30), districts.probability("west"))
    np.testing.assert_array_equal(turned.prediction_set(), districts.prediction_set()[:, [2, 0, 1]])
    np.testing.assert_array_equal(turned.functions(), districts.functions()[:, :, [2, 0, 1]])
    np.testing.assert_allclose(turned[2:4].probabilities, turned.probabilities[2:4], rtol=1e-6)
    assert turned.mode().dtype.kind == "i"


def test_samples_have_the_probabilities_of_the_classes(districts: ClassDistribution) -> None:
    sample = districts.sample(4_000, seed=0)
    assert sample.shape == (4_000, 12)
    shares = np.stack([(sample == name).mean(axis=0) for name in districts.classes], axis=1)
    error = np.sqrt(districts.probabilities * (1.0 - districts.probabilities) / 4_000)
    assert (abs(shares - districts.probabilities) < 4.0 * error + 1e-9).all()
    np.testing.assert_array_equal(districts.sample(3, seed=5), districts.sample(3, seed=5))


def test_without_draws_there_are_probabilities_alone(quarter: Posterior) -> None:
    distribution = ClassDistribution(*asked(quarter, samples=0))
    np.testing.assert_allclose(distribution.probabilities.sum(axis=1), 1.0)
    assert distribution.sample(2, seed=0).shape == (2, 12)
    asks: list[Callable[[], Any]] = [
        distribution.entropy,
        distribution.epistemic,
        distribution.interval,
        distribution.prediction_set,
        distribution.functions,
    ]
    for ask in asks:
        with pytest.raises(ValueError, match=r"^samples: a whole number, at least 1 for"):
            ask()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda districts: districts.probability("south"),
            r"'south' is none of the 3 classes \('east', 'north', 'west'\)",
        ),
        (lambda districts: districts.prediction_set(90), "^coverage: .*no per cent"),
        (lambda districts: districts.interval(1.0), "^confidence: "),
        (lambda districts: districts.sample(True), "^n: a whole number, at least 1, not True"),
    ],
)
def test_what_can_not_be_asked_is_said(
    districts: ClassDistribution, ask: Callable[[ClassDistribution], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ask(districts)


def test_it_shows_itself_in_short(districts: ClassDistribution) -> None:
    assert repr(districts).startswith("<district of 12 rows: ")
    assert repr(districts).count("%") == 5
