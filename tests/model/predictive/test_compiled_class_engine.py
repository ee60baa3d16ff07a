"""Compiled code for classes gives the answers of PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.model.bbb.likelihood import ClassLikelihood
from murho.model.bbb.registry import make_likelihood
from murho.model.calibration.classes import ClassCalibration, fit_class_map, fit_prediction_sets
from murho.model.predictive.compiled_engine import CompiledClassEngine, load, select_engine
from murho.model.predictive.plans import ClassTargetModel
from murho.model.predictive.prediction import PredictOptions
from murho.model.predictive.torch_engine import TorchEngine

if TYPE_CHECKING:
    import numpy as np

KERNELS = load()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="needs Numba")


def target(classes: int) -> ClassTargetModel:
    likelihood = make_likelihood("bernoulli" if classes == 2 else "categorical", members=2, classes=classes)
    assert isinstance(likelihood, ClassLikelihood)
    shares = torch.arange(1.0, classes + 1.0, dtype=torch.float64)
    return ClassTargetModel(likelihood, tuple("abcdefgh"[:classes]), shares / shares.sum(), 1e-3)


def calibration(classes: int) -> ClassCalibration:
    generator = torch.Generator().manual_seed(5)
    logs = torch.log_softmax(3.0 * torch.randn(400, classes, generator=generator, dtype=torch.float64), dim=1)
    labels = torch.multinomial(torch.softmax(0.5 * logs, dim=1), 1, generator=generator).squeeze(1)
    mapped = fit_class_map(logs, labels)
    return ClassCalibration(mapped, fit_prediction_sets(mapped.log_probabilities(logs).exp(), labels))


def answers(
    model: ClassTargetModel, options: PredictOptions, logits: torch.Tensor, outside: torch.Tensor, *, calibrated: bool
) -> list[dict[str, np.ndarray]]:
    assert KERNELS is not None
    members = torch.arange(len(logits)) % 2
    plan = model.plan(options, calibration(len(model.classes)) if calibrated else None, torch.device("cpu"))
    engines = TorchEngine(model), CompiledClassEngine(model, KERNELS)
    return [engine.answer(plan, logits, members, outside) for engine in engines]


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 1000),
    st.sampled_from([1, 2, 7, 64]),
    st.sampled_from([1, 9]),
    st.integers(2, 6),
    st.sampled_from([0.1, 2.0, 60.0]),
    st.booleans(),
    st.booleans(),
)
def test_both_engines_give_the_same_numbers(
    seed: int, samples: int, rows: int, classes: int, spread: float, calibrated: bool, far: bool
) -> None:
    model = target(classes)
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(samples, model.likelihood.outputs, rows, generator=generator)
    outside = torch.arange(rows) % 3 == 0 if far else torch.zeros(rows, dtype=torch.bool)
    options = PredictOptions(samples=samples, draws=True, percentiles=(10.0, 50.0))
    reference, compiled = answers(model, options, logits.transpose(1, 2), outside, calibrated=calibrated)
    assert reference.keys() == compiled.keys()
    for name, expected in reference.items():
        assert compiled[name].shape == expected.shape
        assert compiled[name] == pytest.approx(expected, abs=2e-6), name


def test_classes_get_compiled_code_where_there_is_any() -> None:
    assert select_engine(target(3), torch.device("cpu")).name == "compiled"
    assert select_engine(target(3), torch.device("cpu"), "torch").name == "torch"


def test_without_draws_pytorch_answers() -> None:
    model = target(3)
    options = PredictOptions(samples=0)
    reference, compiled = answers(
        model, options, torch.randn(2, 4, 3), torch.zeros(4, dtype=torch.bool), calibrated=True
    )
    assert set(compiled) == {"prediction", "probabilities"}
    assert (compiled["probabilities"] == reference["probabilities"]).all()
