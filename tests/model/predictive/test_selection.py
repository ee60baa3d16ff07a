"""A posterior's engine: compiled code where it is available, PyTorch everywhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from murho.model.bbb.numbers import FixedNoise
from murho.model.predictive.compiled_engine import select_engine
from tests.model.predictive.engine_contract import target_model

CPU = torch.device("cpu")


def test_on_a_cpu_it_is_compiled_code() -> None:
    assert select_engine(target_model("mixture", "log"), CPU).name == "compiled"


def test_pytorch_can_be_asked_for() -> None:
    assert select_engine(target_model("mixture"), CPU, "torch").name == "torch"


def test_on_a_gpu_it_is_pytorch() -> None:
    assert select_engine(target_model("mixture"), torch.device("cuda")).name == "torch"


def test_for_an_observation_model_without_compiled_code_it_is_pytorch() -> None:
    class OtherNoise(FixedNoise):
        mixture_outputs = False

    assert select_engine(replace(target_model("fixed"), likelihood=OtherNoise(0.1)), CPU).name == "torch"


def test_an_engine_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="engine must be one of auto, torch, not 'jax'"):
        select_engine(target_model("fixed"), CPU, "jax")
