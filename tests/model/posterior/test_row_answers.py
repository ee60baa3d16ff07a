"""Answers at once from the network's outputs: the numbers that the longer way gives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from benchmarks.engine_peers.exchange import EngineTask
from benchmarks.engine_peers.murho_posterior import facts_of, tensors_of
from murho.model.distributions.transforms import Identity
from murho.model.engines.compiled import kernel_loader as kernels
from murho.model.likelihoods.gaussian import FixedNoise
from murho.model.posterior import row_answers
from murho.model.posterior.model_spec import ModelSpec
from murho.model.posterior.posterior import Posterior
from murho.model.posterior.prediction import PredictOptions
from murho.model.posterior.row_answers import RowAnswers
from tests.model.conftest import present

if TYPE_CHECKING:
    from murho.model.posterior.prediction import Prediction

NUMBERS = ("mean", "std", "epistemic_std", "aleatoric_std", "percentiles")
TRANSFORMS = {"none": {"kind": "none"}, "log": {"kind": "log", "shift": 0.25, "top": 3.0}}
CALIBRATION = {
    "method": "split-conformal",
    "nominal": [0.5, 1.0, 2.0, 3.0],
    "observed": [0.4, 1.3, 1.9, 4.0],
    "rows": 100,
}
OPTIONS = PredictOptions(samples=52, percentiles=(1.0, 5.0, 50.0, 97.5))
EVERYTHING = replace(OPTIONS, thresholds=(-1.0, 0.5, 1.5, 4.0), draws=True)


def posterior(
    noise: str, transform: str = "none", *, wide: bool = True, calibrated: bool = False
) -> Posterior:
    task = EngineTask((9,), noise="fixed" if noise == "homoscedastic" else noise)
    facts, tensors = facts_of(task), tensors_of(task)
    if noise == "homoscedastic":
        facts["likelihood"]["kind"] = noise
        tensors["noise.rho"] = torch.tensor([[-1.5]])
    facts["target"] = {"location": 1.5, "scale": 0.7, "transform": TRANSFORMS[transform]}
    facts["calibration"] = CALIBRATION if calibrated else None
    if not wide:
        facts["likelihood"]["wide"] = None
    return Posterior(ModelSpec.from_json(facts), tensors)


def rows(count: int) -> np.ndarray:
    """Some within the training range, some beyond it."""
    task = EngineTask((9,))
    return np.concatenate((task.rows(count), 2.0 * task.rows(count))).astype(np.float32)


@pytest.fixture(autouse=True)
def loaded() -> None:
    kernels.load()


def longer(given: Posterior, encoded: np.ndarray, options: PredictOptions = OPTIONS) -> Prediction:
    """The same answer by way of `model.distributions.predictive`."""
    with patch.object(given._answering, "_rows", None):
        return given.predict_encoded(encoded, options)


def assert_same(actual: Prediction, expected: Prediction, *, to: float = 3e-6) -> None:
    """Relative to the larger of the value and the row's std; exceedance to as much of the smaller probability."""
    for name in (*NUMBERS, "draws"):
        if getattr(expected, name) is None:
            assert getattr(actual, name) is None
            continue
        wanted = np.atleast_2d(getattr(expected, name).T)
        difference = np.abs(np.atleast_2d(getattr(actual, name).T) - wanted)
        assert (difference <= to * np.maximum(np.abs(wanted), present(expected.std))).all(), name
    if expected.exceedance is not None:
        least = np.minimum(expected.exceedance, 1.0 - expected.exceedance)
        assert (np.abs(present(actual.exceedance) - expected.exceedance) <= 1e-5 * least + 1e-15).all()


@pytest.mark.parametrize("wide", [False, True], ids=["", "wide"])
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("noise", ["fixed", "homoscedastic", "heteroscedastic", "mixture"])
def test_numbers_are_those_of_the_longer_way(noise: str, transform: str, wide: bool) -> None:
    given = posterior(noise, transform, wide=wide)
    for count in (1, 20):
        for options in (OPTIONS, EVERYTHING, replace(EVERYTHING, noise=False)):
            answer = given.predict_encoded(rows(count), options)
            assert_same(answer, longer(given, rows(count), options))


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_percentiles_and_exceedance_are_calibrated_and_beyond_the_training_rows_only_widened(
    transform: str,
) -> None:
    given = posterior("mixture", transform, calibrated=True)
    answer = given.predict_encoded(rows(20), EVERYTHING)
    assert_same(answer, longer(given, rows(20), EVERYTHING))
    raw = given.predict_encoded(rows(20), replace(EVERYTHING, calibrated=False))
    assert not np.allclose(present(raw.percentiles), present(answer.percentiles))
    assert not np.allclose(present(raw.exceedance), present(answer.exceedance))
    for some in (rows(20)[:20], rows(20)[25:26]):
        assert_same(given.predict_encoded(some, EVERYTHING), longer(given, some, EVERYTHING))


@pytest.mark.parametrize("noise", ["fixed", "mixture"])
def test_a_row_alone_is_answered_as_among_others(noise: str) -> None:
    given = posterior(noise)
    whole = given.predict_encoded(rows(40), OPTIONS)
    for row in (0, 17, 79):
        alone = given.predict_encoded(rows(40)[row : row + 1], OPTIONS)
        for name in NUMBERS:
            expected = getattr(whole, name)[row]
            np.testing.assert_allclose(getattr(alone, name)[0], expected, rtol=2e-6, atol=2e-6)


@pytest.mark.usefixtures("two_threads")
def test_threads_share_the_rows_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given = posterior("mixture", "log")
    torch.set_num_threads(1)
    alone = given.predict_encoded(rows(40), OPTIONS)
    torch.set_num_threads(2)
    monkeypatch.setattr(row_answers, "PART", 1)
    spans = []

    def watched(*arguments: Any) -> None:
        spans.append(arguments[9:11])
        compiled.answer_rows(*arguments)

    compiled = kernels.load()
    process = kernels._Process(replace(compiled, answer_rows=watched))
    monkeypatch.setattr(kernels, "_PROCESS", process)
    monkeypatch.setattr("murho.model.runtime.threads.FEW_PRODUCTS", 0)
    assert_same(given.predict_encoded(rows(40), OPTIONS), alone)
    assert sorted(spans) == [(0, 40), (40, 80)]


def test_levels_that_are_left_open_are_found_by_the_longer_way(monkeypatch: pytest.MonkeyPatch) -> None:
    given = posterior("mixture", calibrated=True)
    expected = longer(given, rows(10))
    compiled = kernels.load()

    def without(*arguments: Any) -> None:
        compiled.answer_rows(*arguments)
        values, settled = arguments[12:14]
        for row, level in ((0, 0), (3, 1), (19, 3)):
            values[row, level:], settled[row] = np.nan, False

    process = kernels._Process(replace(compiled, answer_rows=without))
    monkeypatch.setattr(kernels, "_PROCESS", process)
    assert_same(given.predict_encoded(rows(10), OPTIONS), expected)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_levels_too_far_out_for_compiled_code_are_found_all_the_same(transform: str) -> None:
    given = posterior("mixture", transform, calibrated=True)
    options = replace(OPTIONS, percentiles=(1e-13, 50.0, 100.0 - 1e-12))
    assert_same(given.predict_encoded(rows(5), options), longer(given, rows(5), options), to=1e-5)


@pytest.mark.parametrize("percentiles", [(), (50.0,), (95.0, 5.0, 50.0), (5.0, 5.0), tuple(range(1, 100))])
def test_any_levels_may_be_asked_for(percentiles: tuple[float, ...]) -> None:
    given, options = posterior("mixture"), replace(OPTIONS, percentiles=tuple(map(float, percentiles)))
    assert_same(given.predict_encoded(rows(5), options), longer(given, rows(5), options))


@pytest.mark.parametrize("calibrated", [False, True])
def test_levels_come_in_the_order_they_were_asked_for_in(calibrated: bool) -> None:
    given = posterior("mixture", calibrated=calibrated)
    rising, mixed = (
        present(given.predict_encoded(rows(5), replace(OPTIONS, percentiles=levels)).percentiles)
        for levels in ((5.0, 50.0, 80.0, 95.0), (80.0, 5.0, 95.0, 50.0))
    )
    np.testing.assert_array_equal(mixed, rising[:, [2, 0, 3, 1]])


def test_standard_errors_are_those_of_the_longer_way() -> None:
    given, options = posterior("mixture", "log"), replace(OPTIONS, mc_error=True)
    answer, expected = given.predict_encoded(rows(5), options), longer(given, rows(5), options)
    assert_same(answer, expected)
    for name in ("mean", "std", "percentiles"):
        found, wanted = (getattr(present(some.mc_error), name) for some in (answer, expected))
        np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_percentiles_never_fall_from_level_to_level() -> None:
    levels = tuple(50.0 + 1e-7 * step for step in range(12))
    answer = posterior("fixed").predict_encoded(rows(20), replace(OPTIONS, percentiles=levels))
    assert (np.diff(present(answer.percentiles), axis=1) >= 0.0).all()


def test_a_likelihood_that_compiled_code_does_not_know_is_left_to_the_longer_way() -> None:
    class OtherNoise(FixedNoise):
        kind = "other"

    assert RowAnswers.of(FixedNoise(0.1), 0.0, 1.0, Identity(), None) is not None
    assert RowAnswers.of(OtherNoise(0.1), 0.0, 1.0, Identity(), None) is None
