"""Matrix products that compiled code calls; their results are tested with the compiled forward pass."""

from __future__ import annotations

import pytest
import torch

from murho.model.predictive.compiled import passes
from murho.model.predictive.compiled.passes import register_products


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="PyTorch has another library behind it here")
def test_products_are_registered_where_pytorch_uses_mkl() -> None:
    assert register_products()


def test_a_library_without_the_products_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "SYMBOLS", {"murho_sgemm": "a_name_of_no_library"})
    assert not register_products()


def test_a_missing_library_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__file__", "/nowhere/torch/__init__.py")
    assert not register_products()
