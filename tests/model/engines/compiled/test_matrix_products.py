"""Products of matrices that compiled code calls; what they come to is tested with `model.engines.forward`."""

from __future__ import annotations

import pytest
import torch

from murho.model.engines.compiled import matrix_products
from murho.model.engines.compiled.matrix_products import products_at_hand


@pytest.mark.skipif(
    not torch.backends.mkl.is_available(), reason="PyTorch has another library behind it here"
)
def test_they_are_at_hand_where_pytorch_has_mkl_behind_it() -> None:
    assert products_at_hand()


def test_a_library_without_them_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_products, "SYMBOLS", {"murho_sgemm": "a_name_of_no_library"})
    assert not products_at_hand()


def test_neither_is_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__file__", "/nowhere/torch/__init__.py")
    assert not products_at_hand()
