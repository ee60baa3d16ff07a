"""The distribution of classes says what the posterior says, in the caller's order of the classes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from murho.model.checkpoint.posterior import Posterior
from murho.model.predictive.prediction import PredictOptions
from murho.model.python.answers import VALUES_AT_ONCE, ClassDistribution, NumberDistribution
from murho.model.tables.schema_inference import columns_from_table
from tests.model.conftest import make_table
from tests.model.python.conftest import asked, flats


def test_it_says_what_the_posterior_says(districts: ClassDistribution, quarter: Posterior) -> None:
    options = PredictOptions(64, percentiles=(5.0, 95.0), coverage=0.8, draws=True)
    answer = quarter.predict(columns_from_table(flats(), quarter.schema), options)
    assert districts.classes.tolist() == ["east", "north", "west"]
    np.testing.assert_array_equal(districts.probabilities, answer.probabilities)
    np.testing.assert_array_equal(districts.epistemic_std, answer.epistemic_std)
    np.testing.assert_array_equal(districts.entropy, answer.entropy)
    np.testing.assert_array_equal(districts.epistemic_entropy, answer.epistemic_entropy)
    np.testing.assert_allclose(np.stack(districts.interval(), axis=-1), answer.percentiles)
    np.testing.assert_array_equal(districts.prediction_set(0.8), answer.prediction_set)
    np.testing.assert_array_equal(districts.functions(), answer.draws)
    np.testing.assert_array_equal(districts.probability("west"), answer.probabilities[:, 2])
    np.testing.assert_array_equal(districts.prediction, districts.classes[answer.prediction])
    np.testing.assert_allclose(districts.aleatoric_entropy + districts.epistemic_entropy, districts.entropy)
    assert districts.calibrated == answer.calibrated


def test_classes_may_have_other_names_and_another_order(quarter: Posterior, districts: ClassDistribution) -> None:
    turned = ClassDistribution(*asked(quarter), np.array([30, 20, 10]), np.array([2, 0, 1]))
    np.testing.assert_array_equal(turned.probabilities, districts.probabilities[:, [2, 0, 1]])
    np.testing.assert_array_equal(turned.probability(30), districts.probability("west"))
    np.testing.assert_array_equal(turned.prediction_set(), districts.prediction_set()[:, [2, 0, 1]])
    np.testing.assert_array_equal(turned.functions(), districts.functions()[:, :, [2, 0, 1]])
    np.testing.assert_allclose(turned[2:4].probabilities, turned.probabilities[2:4], rtol=1e-6)
    assert turned.prediction.dtype.kind == "i"


def test_samples_have_the_probabilities_of_the_classes(districts: ClassDistribution) -> None:
    sample = districts.sample(4_000, seed=0)
    assert sample.shape == (4_000, 12)
    shares = np.stack([(sample == name).mean(axis=0) for name in districts.classes], axis=1)
    error = np.sqrt(districts.probabilities * (1.0 - districts.probabilities) / 4_000)
    assert (abs(shares - districts.probabilities) < 4.0 * error + 1e-9).all()
    np.testing.assert_array_equal(districts.sample(3, seed=5), districts.sample(3, seed=5))


def test_without_draws_there_are_means_and_probabilities_alone(rent: Posterior, quarter: Posterior) -> None:
    number = NumberDistribution(*asked(rent, samples=0))
    classes = ClassDistribution(*asked(quarter, samples=0))
    assert repr(number).startswith("<rent of 12 rows: ")
    np.testing.assert_allclose(classes.probabilities.sum(axis=1), 1.0)
    assert classes.sample(2, seed=0).shape == (2, 12)
    asks: list[Callable[[], Any]] = [
        *(lambda: number.std, number.median, lambda: number.cdf(0.0)),
        *(lambda: classes.entropy, classes.interval, classes.prediction_set, classes.functions),
    ]
    for ask in asks:
        with pytest.raises(ValueError, match=r"^samples: a whole number, at least 1 for"):
            ask()


LEVELS = np.array([0.001, 0.05, 0.5, 0.95, 0.999])[:, None]


def test_it_says_what_the_posterior_says_of_a_number(rents: NumberDistribution, rent: Posterior) -> None:
    options = PredictOptions(64, percentiles=(5.0, 95.0), thresholds=(700.0,))
    answer = rent.predict(columns_from_table(flats(), rent.schema), options)
    np.testing.assert_array_equal(rents.mean, answer.mean)
    np.testing.assert_allclose(rents.std, answer.std, rtol=1e-7)
    np.testing.assert_allclose(rents.var(), rents.epistemic_std**2 + rents.aleatoric_std**2)
    np.testing.assert_allclose(rents[3:5].functions(), rents.functions()[3:5], rtol=1e-5)
    np.testing.assert_allclose(rents.functions().mean(axis=1), rents.mean, rtol=1e-6)
    np.testing.assert_allclose(rents.epistemic_std, answer.epistemic_std, rtol=1e-7)
    np.testing.assert_allclose(rents.aleatoric_std, answer.aleatoric_std, rtol=1e-7)
    np.testing.assert_allclose(rents.interval(0.9), answer.percentiles.T, rtol=1e-6)
    np.testing.assert_allclose(rents.sf(700.0), answer.exceedance[:, 0], rtol=1e-6)
    assert rents.calibrated


@pytest.mark.parametrize("calibrated", [True, False])
def test_the_distribution_function_inverts_the_quantiles(rent: Posterior, calibrated: bool) -> None:
    distribution = NumberDistribution(*asked(rent, calibrated=calibrated))
    values = distribution.ppf(LEVELS)
    assert values.shape == (5, 12)
    assert (np.diff(values, axis=0) > 0.0).all()
    np.testing.assert_allclose(distribution.cdf(values), np.broadcast_to(LEVELS, values.shape), atol=1e-5)
    np.testing.assert_allclose(distribution.sf(values) + distribution.cdf(values), 1.0)


def test_values_of_their_own_for_many_rows_are_those_of_each_row_alone(rent: Posterior) -> None:
    rows = VALUES_AT_ONCE + 6
    distribution = NumberDistribution(*asked(rent, rows))
    levels = np.random.default_rng(0).uniform(0.01, 0.99, (2, rows))
    values = distribution.ppf(levels)
    for row in (0, 31, rows - 1):
        np.testing.assert_allclose(distribution[row].ppf(levels[:, [row]])[:, 0], values[:, row], rtol=1e-5)
    errors = np.abs(distribution.cdf(values) - levels)
    assert np.quantile(errors, 0.9) < 2e-6
    assert errors.max() < 5e-5  # single precision, where a row's distribution is steep


def test_shapes_are_those_of_broadcasting(rents: NumberDistribution) -> None:
    assert rents.ppf(0.5).shape == rents.cdf(np.full(12, 500.0)).shape == rents.median().shape == (12,)
    assert rents.sf([[400.0], [500.0]]).shape == (2, 12)
    lower, upper = rents.interval([[0.5], [0.9]])
    assert lower.shape == upper.shape == (2, 12)
    np.testing.assert_array_equal(rents.interval(0.9), np.stack((lower[1], upper[1])))
    assert rents[:0].ppf(0.5).shape == (0,)


def test_at_the_ends_probabilities_are_0_and_1(rents: NumberDistribution) -> None:
    values = np.array([[-np.inf], [np.inf], [np.nan]])
    np.testing.assert_array_equal(rents.cdf(values)[:, 0], [0.0, 1.0, np.nan])
    np.testing.assert_array_equal(rents.sf(values)[:, 0], [1.0, 0.0, np.nan])


def test_samples_are_one_in_each_part_of_equal_probability(rents: NumberDistribution) -> None:
    sample = rents.sample(40, seed=1)
    assert sample.shape == (40, 12)
    parts = np.floor(np.sort(rents.cdf(sample), axis=0) * 40)
    np.testing.assert_array_equal(parts, np.broadcast_to(np.arange(40)[:, None], parts.shape))
    np.testing.assert_array_equal(rents.sample(40, seed=1), sample)
    assert not np.array_equal(rents.sample(40, seed=2), sample)
    assert rents.sample().shape == (1, 12)


def test_samples_have_the_moments_of_the_distribution(rent: Posterior) -> None:
    distribution = NumberDistribution(*asked(rent, calibrated=False))
    sample = distribution.sample(4_000, seed=0)
    np.testing.assert_allclose(sample.mean(axis=0), distribution.mean, rtol=1e-3)
    np.testing.assert_allclose(sample.std(axis=0), distribution.std, rtol=0.02)
    orders = sample.argsort(axis=0).argsort(axis=0)
    assert abs(np.corrcoef(orders.T) - np.eye(12)).max() < 0.08  # 5 standard errors


def test_rows_are_selected_as_in_arrays(rents: NumberDistribution) -> None:
    mean = rents.mean
    for rows in (slice(2, 5), [1, 3], mean > np.median(mean)):
        np.testing.assert_allclose(rents[rows].mean, mean[rows], rtol=1e-6)
    assert len(rents) == 12
    assert len(rents[-1]) == 1


def test_what_is_unlike_the_training_rows_is_listed(rent: Posterior) -> None:
    table = make_table(rows=3, seed=9)
    far = table.set_column(0, "size", [[50.0, 9_000.0, 60.0]])
    distribution = NumberDistribution(rent, far, PredictOptions(samples=64))
    (warning,) = distribution.warnings
    assert (warning.row, warning.feature) == (1, "size")
    assert "9000" in warning.message
    assert distribution.extrapolation.tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("of", "ask", "message"),
    [
        ("districts", lambda of: of.probability("south"), "'south' is none of the 3 classes .'east', 'north', 'west'."),
        ("districts", lambda of: of.prediction_set(90), "^coverage: .*not per cent"),
        ("districts", lambda of: of.sample(True), r"^n: a whole number, at least 1 and below 2\^63, not True"),
        ("rents", lambda of: of.ppf([0.1, 0.9]), r"^q: a number, or one for each of the 12 rows, .* np\.reshape"),
        ("rents", lambda of: of.cdf("a"), "^x: a number, or one for each of the 12 rows, not 'a'"),
        ("rents", lambda of: of.ppf(95), "not per cent: 0.95, not 95"),
    ],
)
def test_what_can_not_be_asked_is_said(
    of: str, ask: Callable[[Any], object], message: str, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(ValueError, match=message):
        ask(request.getfixturevalue(of))


def test_answers_are_columns_tables_and_charts(rents: NumberDistribution, districts: ClassDistribution) -> None:
    for distribution, first in ((rents, "mean"), (districts, "prediction")):
        frame = distribution.to_pandas()
        assert next(iter(frame)) == first
        assert len(frame) == len(distribution) == 12
        assert distribution._repr_html_().count("<tr>") == 11
        assert repr(distribution).startswith(f"<{'rent' if first == 'mean' else 'district'} of 12 rows: ")
        assert len(distribution.plot().to_dict()["data"]["values"]) == 12
    assert (rents.to_pandas()["p5"] < rents.to_pandas()["p95"]).all()
