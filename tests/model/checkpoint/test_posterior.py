"""Answers of a loaded checkpoint, against the mixture machinery and the contract's rules."""

import gc
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from murho.model.checkpoint.posterior import Posterior
from murho.model.evaluation.judging import judge_encoded
from murho.model.evaluation.number_scores import JudgedNumbers
from murho.model.predictive.forward import forward
from murho.model.predictive.prediction import Prediction, PredictOptions, Question
from murho.model.tables.schema import Columns
from murho.model.tables.schema_inference import columns_from_table
from murho.model.training.train import Trained
from tests.model.conftest import make_table, present, train_quickly
from tests.model.maps import odd_map


@pytest.fixture(scope="module")
def columns(rent: Posterior) -> Columns:
    return columns_from_table(make_table(rows=1000, seed=9), rent.schema)


def _rows(columns: Columns, rows: slice) -> Columns:
    return {name: column[rows] for name, column in columns.items()}


def test_monte_carlo_errors_are_about_those_made(rent: Posterior, columns: Columns) -> None:
    assert rent.predict(columns, PredictOptions(samples=1, mc_error=True)).mc_error is None
    few = _rows(columns, slice(100))
    truth = rent.predict(few, PredictOptions(samples=8192, seed=99))
    made, claimed = [], []
    for seed in range(20):
        answer = rent.predict(few, PredictOptions(samples=256, seed=seed, mc_error=True))
        errors = answer.mc_error
        assert errors is not None
        of_std = present(answer.std) - present(truth.std)
        of_percentiles = present(answer.percentiles) - present(truth.percentiles)
        made.append(np.column_stack((answer.mean - truth.mean, of_std, of_percentiles)))
        claimed.append(np.column_stack((errors.mean, errors.std, errors.percentiles)))
    ratio = np.sqrt(np.mean(np.square(claimed), axis=0) / np.mean(np.square(made), axis=0))
    assert ((ratio.mean(axis=0) > 0.75) & (ratio.mean(axis=0) < 1.5)).all(), ratio.mean(axis=0)


def test_no_samples_give_the_mu_network_bit_for_bit(rent: Posterior, columns: Columns) -> None:
    options = PredictOptions(samples=0)
    answer, again = rent.predict(columns, options), rent.predict(columns, options)
    assert np.array_equal(answer.mean, again.mean)
    rows = torch.from_numpy(rent.encoder.encode(columns).inputs)
    of_members = forward(rent.draws.means, rows)[..., 0].double() * rent.scale + rent.location
    mu_only = of_members.mean(dim=0)
    assert np.array_equal(answer.mean, mu_only.numpy())
    assert answer.std is answer.epistemic_std is answer.aleatoric_std is answer.percentiles is answer.exceedance is None
    assert not answer.calibrated


def test_a_posterior_leaves_memory_with_its_last_user(rent_checkpoints: Path) -> None:
    # The service keeps the garbage collector from what it has loaded, and loads new versions all its life.
    posterior = Posterior.load(rent_checkpoints / "rent" / "1")
    posterior.warm_up()
    gone = weakref.ref(posterior)
    gc.disable()
    try:
        del posterior
        assert gone() is None
    finally:
        gc.enable()


BAND = (2.5, 97.5)
NARROWING = odd_map((1.0, 2.0), (0.5, 1.2), 60)
WIDENING = odd_map((1.0, 2.0), (1.5, 3.0), 60)


@pytest.fixture(scope="module", params=["heteroscedastic", "mixture"])
def trained(request: pytest.FixtureRequest) -> Trained:
    return train_quickly(make_table(), members=2, noise=request.param, epochs=40)


def _posterior(trained: Trained, **changes: Any) -> Posterior:
    return Posterior(replace(trained.spec, **changes), trained.posterior.tensors)


def _at(posterior: Posterior, **cells: object) -> Columns:
    """Training rows with all cells known and some set."""
    columns = columns_from_table(make_table(), posterior.schema)
    known = ~np.isnan(columns["size"])
    rows: dict[str, Any] = {name: column[known][:20].copy() for name, column in columns.items()}
    for name, value in cells.items():
        rows[name] = np.full(20, value, dtype=rows[name].dtype)
    return rows


def _band(posterior: Posterior, rows: Columns, *, calibrated: bool = True) -> np.ndarray:
    answer: Prediction = posterior.predict(rows, PredictOptions(percentiles=BAND, calibrated=calibrated))
    return present(answer.percentiles)


@pytest.mark.parametrize("cells", [{"size": 500.0}, {"day": 40_000.0}, {"district": "elsewhere"}])
def test_beyond_the_range_a_calibrated_band_is_never_narrower_than_the_raw_one(
    trained: Trained, cells: dict[str, object]
) -> None:
    narrowing, only_widen = (_posterior(trained, calibration=each) for each in (NARROWING, WIDENING))
    far, near = _at(narrowing, **cells), _at(narrowing)
    raw = _band(narrowing, far, calibrated=False)
    np.testing.assert_allclose(_band(narrowing, far), raw, rtol=1e-6)
    wide = _band(only_widen, far)
    assert (wide[:, 0] < raw[:, 0]).all()
    assert (wide[:, 1] > raw[:, 1]).all()
    inside, inside_raw = _band(narrowing, near), _band(narrowing, near, calibrated=False)
    assert (inside[:, 0] > inside_raw[:, 0]).all()
    assert (inside[:, 1] < inside_raw[:, 1]).all()


def test_noise_beyond_is_that_of_the_edge_and_epistemic_std_grows_without_a_limit(trained: Trained) -> None:
    posterior = _posterior(trained)
    largest = posterior.schema.features[0].maximum
    assert largest is not None
    edge, far, further = (
        posterior.predict(_at(posterior, size=size), PredictOptions(samples=1024, calibrated=False))
        for size in (largest, largest + 1_000.0, largest + 10_000.0)
    )
    noise = present(edge.aleatoric_std)
    np.testing.assert_allclose(present(far.aleatoric_std), noise, rtol=0.02)
    np.testing.assert_allclose(present(further.aleatoric_std), noise, rtol=0.02)
    assert (present(far.epistemic_std) > present(edge.epistemic_std)).all()
    ratio = present(further.epistemic_std) / present(far.epistemic_std)
    np.testing.assert_allclose(ratio, 10.0, rtol=0.15)  # far beyond what was tested all terms are linear


def test_what_lies_a_little_outside_is_near_and_what_lies_further_is_extrapolation(trained: Trained) -> None:
    posterior = _posterior(trained)
    size = posterior.schema.features[0]
    least, most = present(size.minimum), present(size.maximum)
    for share, far in ((0.0, False), (0.03, False), (0.05, True), (0.5, True), (100.0, True)):
        for value in (most + share * (most - least), least - share * (most - least)):
            rows = _at(posterior, size=value)
            ((answer, warnings),) = posterior.predict_questions(rows, (Question(slice(0, 20), PredictOptions(), 99),))
            np.testing.assert_array_equal(present(answer.extrapolation), present(answer.outlier) | far)
            assert not far or {warning.row for warning in warnings if warning.feature == "size"} == set(range(20))


def test_judgements_use_the_bands_that_are_served(trained: Trained) -> None:
    posterior = _posterior(trained, calibration=NARROWING)
    near, far = _at(posterior), _at(posterior, size=500.0)
    both = {name: np.concatenate([near[name], far[name]]) for name in near}
    targets = np.full(40, 700.0)
    judged = judge_encoded(posterior, posterior.encoder.encode(both), targets)
    assert isinstance(judged, JudgedNumbers)
    band = _band(posterior, both)
    inside = (band[:, 0] <= targets) & (targets <= band[:, 1])
    np.testing.assert_array_equal(judged.bands["calibrated"].inside[:, -1], inside)
    exceedance = posterior.predict(both, PredictOptions(thresholds=(700.0,))).exceedance
    np.testing.assert_allclose(judged.served.pit, 1.0 - exceedance[:, 0], atol=1e-5)
