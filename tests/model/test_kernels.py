"""When compiled code is loaded."""

from __future__ import annotations

import subprocess
import sys

import pytest

from model import kernels
from model.kernels import LOADING, at_hand, load, worth_loading


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_PROCESS", kernels._Process())


def test_it_is_at_hand_once_it_is_loaded() -> None:
    assert at_hand() is None
    loaded = load()
    assert at_hand() is loaded
    assert load() is loaded
    assert worth_loading(1) is loaded


def test_it_is_loaded_once_what_was_done_without_would_have_paid_for_it() -> None:
    assert worth_loading(LOADING // 2) is None
    assert worth_loading(LOADING // 2) is None
    assert at_hand() is None
    assert worth_loading(1) is not None
    assert at_hand() is not None


def test_who_answers_a_few_rows_does_not_load_the_compiler() -> None:
    few = (
        "import sys, torch; from model.mixtures import Mixture; "
        "Mixture(torch.zeros(256, 9).double(), torch.ones(1, 1).double()).quantiles(torch.zeros(3).double()); "
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", few], check=True, timeout=120)
