"""Answers beyond the training rows: epistemic spread grows, noise does not, calibration never narrows a band."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast
from unittest.mock import patch

import numpy as np
import pytest
import torch

from murho.model.checkpoint.posterior import Posterior
from murho.model.checkpoint.spec import FURTHEST_TARGET
from murho.model.evaluation.judging import judge_encoded
from murho.model.evaluation.numbers import JudgedNumbers
from murho.model.predictive.prediction import Prediction, PredictOptions
from murho.model.tables.schema_inference import columns_from_table
from tests.model.conftest import make_table, present, train_quickly
from tests.model.maps import odd_map

if TYPE_CHECKING:
    from typing import Any

    from murho.model.distributions.predictive import Predictive
    from murho.model.tables.schema import Columns
    from murho.model.training.train import Trained

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
    assert answer.percentiles is not None
    return answer.percentiles


@pytest.mark.parametrize("cells", [{"size": 500.0}, {"day": 40_000.0}, {"district": "elsewhere"}])
def test_beyond_the_range_a_calibrated_band_is_never_narrower_than_the_raw_one(
    trained: Trained, cells: dict[str, object]
) -> None:
    narrowing, widening = (_posterior(trained, calibration=each) for each in (NARROWING, WIDENING))
    far, near = _at(narrowing, **cells), _at(narrowing)
    raw = _band(narrowing, far, calibrated=False)
    np.testing.assert_allclose(_band(narrowing, far), raw, rtol=1e-6)
    wide = _band(widening, far)
    assert (wide[:, 0] < raw[:, 0]).all()
    assert (wide[:, 1] > raw[:, 1]).all()
    inside, inside_raw = _band(narrowing, near), _band(narrowing, near, calibrated=False)
    assert (inside[:, 0] > inside_raw[:, 0]).all()
    assert (inside[:, 1] < inside_raw[:, 1]).all()


def test_rows_inside_are_answered_alike_beside_rows_beyond(trained: Trained) -> None:
    posterior = _posterior(trained, calibration=NARROWING)
    near, far = _at(posterior), _at(posterior, size=500.0)
    both = {name: np.concatenate([near[name], far[name]]) for name in near}
    together = _band(posterior, both)
    for rows, part in ((near, together[:20]), (far, together[20:])):
        alone = _band(posterior, rows)
        np.testing.assert_allclose(part, alone, atol=1e-5 * float(np.abs(alone).max()))


def test_noise_beyond_is_that_of_the_edge_and_doubt_grows_in_proportion(trained: Trained) -> None:
    posterior = _posterior(trained, target_range=None)  # without a limit of function values
    largest = posterior.schema.features[0].maximum
    assert largest is not None
    edge, far, further = (
        posterior.predict(_at(posterior, size=size), PredictOptions(samples=1024, calibrated=False))
        for size in (largest, largest + 1_000.0, largest + 10_000.0)
    )
    noise = present(edge.aleatoric_std)
    np.testing.assert_allclose(present(far.aleatoric_std), noise, rtol=0.02)
    np.testing.assert_allclose(present(further.aleatoric_std), noise, rtol=0.02)
    ratio = present(further.epistemic_std) / present(far.epistemic_std)
    np.testing.assert_allclose(ratio, 10.0, rtol=0.15)


def test_function_values_beyond_are_limited_and_the_mean_is_within_a_width_of_the_training_targets(
    trained: Trained,
) -> None:
    posterior = _posterior(trained)
    least, most = present(trained.spec.target_range)
    rows = _at(posterior, size=1e9, day=1e9, district="elsewhere")
    answer = posterior.predict(rows, PredictOptions(noise=False, percentiles=(0.1, 99.9)))
    percentiles = present(answer.percentiles)
    further = (FURTHEST_TARGET + 1e-3) * (most - least)
    assert percentiles.min() >= least - further
    assert percentiles.max() <= most + further
    for samples in (0, 256):
        mean = posterior.predict(rows, PredictOptions(samples=samples)).mean
        assert ((2 * least - most <= mean) & (mean <= 2 * most - least)).all()


def test_the_predictive_beyond_is_the_same_outside_of_inference_mode(trained: Trained) -> None:
    posterior = _posterior(trained)
    rows = posterior.encoder.encode(_at(posterior, size=500.0))
    plain = cast("Predictive", posterior.drawn(rows, 16, 3).predictive())
    with torch.inference_mode():
        inferred = cast("Predictive", posterior.drawn(rows, 16, 3).predictive())
    assert torch.equal(plain.means, inferred.means)
    assert torch.equal(plain.noise, inferred.noise)


def test_noise_that_is_the_same_everywhere_is_not_looked_up_at_the_edge() -> None:
    posterior = train_quickly(make_table(), noise="homoscedastic").posterior
    with patch.object(posterior, "engine", wraps=posterior.engine) as engine:
        posterior.predict(_at(posterior, size=500.0), PredictOptions(samples=8))
    assert engine.forward.call_count == 1


def test_exceedance_and_percentiles_agree_beyond_too(trained: Trained) -> None:
    levels = (1.0, 10.0, 50.0, 90.0, 99.5)
    for calibration in (NARROWING, WIDENING):
        posterior = _posterior(trained, calibration=calibration)
        row = {name: column[:1] for name, column in _at(posterior, size=300.0).items()}
        percentiles = posterior.predict(row, PredictOptions(percentiles=levels)).percentiles
        assert percentiles is not None
        answer = posterior.predict(row, PredictOptions(thresholds=tuple(percentiles[0].tolist())))
        assert answer.exceedance is not None
        np.testing.assert_allclose(answer.exceedance[0], 1.0 - np.array(levels) / 100.0, atol=2e-5)


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
    assert exceedance is not None
    np.testing.assert_allclose(judged.served.pit, 1.0 - exceedance[:, 0], atol=1e-5)
