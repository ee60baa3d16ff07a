"""Devices by name."""

from __future__ import annotations

import pytest
import torch

from murho.model import runtime as runtime_module
from murho.model.errors import OptionError
from murho.model.runtime import resolve_device, use_threads_for_answering, use_threads_for_fitting


def test_auto_takes_what_there_is() -> None:
    assert resolve_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_device("cpu") == "cpu"


@pytest.mark.parametrize("wanted", ["tpu", "cuda:", "cuda:x", ""])
def test_unknown_devices_are_refused(wanted: str) -> None:
    with pytest.raises(OptionError, match="must be auto, cpu or cuda"):
        resolve_device(wanted)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
@pytest.mark.parametrize("wanted", ["cuda", "cuda:1"])
def test_cuda_that_is_not_there_says_what_to_do(wanted: str) -> None:
    with pytest.raises(OptionError, match="Use --device cpu"):
        resolve_device(wanted)


def test_threads_are_given_back_after_a_fit() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with use_threads_for_fitting("cpu"):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_answers_take_the_processors_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr(runtime_module, "available_processors", lambda: 3)
    try:
        use_threads_for_answering()
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
