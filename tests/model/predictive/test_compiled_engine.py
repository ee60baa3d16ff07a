"""The engine of compiled code keeps the contract of engines, shares rows among threads, and answers every row."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from murho.model.bbb.numbers import FixedNoise
from murho.model.predictive.compiled_engine import CompiledEngine, Kernels, load
from tests.model.predictive.engine_contract import (
    EVERYTHING,
    Case,
    EngineContract,
    MakeEngine,
    assert_same,
    target_model,
)


@pytest.fixture
def kernels() -> Kernels:
    return load() or pytest.fail("compiled code can't be loaded here")


class TestCompiledEngine(EngineContract):
    @pytest.fixture
    def make(self, kernels: Kernels) -> MakeEngine:
        return partial(CompiledEngine, kernels=kernels)


@pytest.mark.usefixtures("two_threads")
def test_threads_share_the_rows_and_change_nothing(kernels: Kernels) -> None:
    spans = []

    def watched(*arguments: Any) -> None:
        spans.append(arguments[6:8])
        kernels.answer_rows(*arguments)

    target = target_model("mixture", "log")
    case = Case.of(target, 80)
    alone = case.asked(CompiledEngine(target, kernels), EVERYTHING)
    shared = CompiledEngine(target, replace(kernels, answer_rows=watched), components_per_thread=1)
    assert_same(case.asked(shared, EVERYTHING), alone, alone["std"])
    assert sorted(spans) == [(first, first + 10) for first in range(0, 80, 10)]


def test_a_row_without_numbers_leaves_the_others_as_they_are(kernels: Kernels) -> None:
    target = target_model("mixture", "log")
    case, engine = Case.of(target, 20), CompiledEngine(target, kernels)
    expected = case.asked(engine, EVERYTHING)
    case.outputs[3, 7] = torch.nan
    answer = case.asked(engine, EVERYTHING)
    for name, numbers in answer.items():
        assert np.isnan(numbers[7]).all()
        np.testing.assert_array_equal(np.delete(numbers, 7, axis=0), np.delete(expected[name], 7, axis=0))


def test_it_knows_the_observation_models_that_its_code_was_written_for() -> None:
    class OtherNoise(FixedNoise):
        mixture_outputs = False

    known = target_model("fixed")
    assert CompiledEngine.supports(known)
    assert not CompiledEngine.supports(replace(known, likelihood=OtherNoise(0.1)))
