"""Both engines keep their contract, and which one a posterior gets."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.model.bbb.likelihood import ClassLikelihood
from murho.model.bbb.number_likelihoods import FixedNoise
from murho.model.bbb.registry import make_likelihood
from murho.model.calibration.class_calibration import ClassCalibration, fit_class_map, fit_prediction_sets
from murho.model.predictive.compiled_engine import CompiledClassEngine, CompiledEngine, Kernels, load, select_engine
from murho.model.predictive.forward import TorchEngine
from murho.model.predictive.plans import AnyTargetModel, ClassTargetModel, DrawnRows, Engine
from murho.model.predictive.prediction import PredictOptions
from tests.model.conftest import present
from tests.model.predictive.engine_contract import (
    CPU,
    EVERYTHING,
    Case,
    EngineContract,
    MakeEngine,
    assert_same,
    target_model,
)


class TestTorchEngine(EngineContract):
    @pytest.fixture
    def make(self) -> MakeEngine:
        return lambda _target: TorchEngine()


@pytest.fixture
def kernels() -> Kernels:
    return load() or pytest.fail("compiled code can't be loaded here")


class TestCompiledEngine(EngineContract):
    @pytest.fixture
    def make(self, kernels: Kernels) -> MakeEngine:
        return partial(CompiledEngine, kernels=kernels)


@pytest.mark.usefixtures("two_threads")
def test_threads_share_the_rows_and_change_nothing(kernels: Kernels) -> None:
    target = target_model("mixture", "log")
    case = Case.of(target, 80)
    alone = case.asked(CompiledEngine(target, kernels), EVERYTHING)
    shared = CompiledEngine(target, kernels, components_per_thread=1)
    assert_same(case.asked(shared, EVERYTHING), alone, alone["std"])


def test_a_row_without_numbers_leaves_the_others_as_they_are(kernels: Kernels) -> None:
    target = target_model("mixture", "log")
    case, engine = Case.of(target, 20), CompiledEngine(target, kernels)
    expected = case.asked(engine, EVERYTHING)
    case.outputs[3, 7] = torch.nan
    answer = case.asked(engine, EVERYTHING)
    for name, numbers in answer.items():
        assert np.isnan(numbers[7]).all()
        np.testing.assert_array_equal(np.delete(numbers, 7, axis=0), np.delete(expected[name], 7, axis=0))


def class_target(classes: int) -> ClassTargetModel:
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
    members = torch.arange(len(logits)) % 2
    plan = model.plan(options, calibration(len(model.classes)) if calibrated else None, CPU)
    engines: tuple[Engine, ...] = TorchEngine(), CompiledClassEngine(present(load()))
    return [DrawnRows(logits, members, outside, model, engine).answer(plan) for engine in engines]


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
    model = class_target(classes)
    generator = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(samples, model.likelihood.outputs, rows, generator=generator)
    outside = torch.arange(rows) % 3 == 0 if far else torch.zeros(rows, dtype=torch.bool)
    options = PredictOptions(samples=samples, draws=True, percentiles=(10.0, 50.0))
    reference, compiled = answers(model, options, logits.transpose(1, 2), outside, calibrated=calibrated)
    assert reference.keys() == compiled.keys()
    for name, expected in reference.items():
        assert compiled[name].shape == expected.shape
        assert compiled[name] == pytest.approx(expected, abs=2e-6), name


def test_without_draws_pytorch_answers_about_classes() -> None:
    nowhere = torch.zeros(4, dtype=torch.bool)
    asked = class_target(3), PredictOptions(samples=0), torch.randn(2, 4, 3), nowhere
    reference, compiled = answers(*asked, calibrated=True)
    assert set(compiled) == {"prediction", "probabilities"}
    assert (compiled["probabilities"] == reference["probabilities"]).all()


class OtherNoise(FixedNoise):
    """No compiled code was written for it."""

    mixture_outputs = False


@pytest.mark.parametrize(
    ("target", "device", "choice", "engine"),
    [
        (target_model("mixture", "log"), "cpu", "auto", "compiled"),
        (class_target(3), "cpu", "auto", "compiled"),
        (target_model("mixture"), "cpu", "torch", "torch"),
        (class_target(3), "cpu", "torch", "torch"),
        (target_model("mixture"), "cuda", "auto", "torch"),
        (replace(target_model("fixed"), likelihood=OtherNoise(0.1)), "cpu", "auto", "torch"),
    ],
)
def test_on_a_cpu_it_is_compiled_code_where_there_is_any(
    target: AnyTargetModel, device: str, choice: str, engine: str
) -> None:
    assert select_engine(target, torch.device(device), choice).name == engine


def test_an_engine_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="engine must be one of auto, torch, not 'jax'"):
        select_engine(target_model("fixed"), CPU, "jax")
