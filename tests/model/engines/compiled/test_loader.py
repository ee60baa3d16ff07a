"""When compiled code is loaded, and what it is used for."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from murho.model.engines.compiled import kernel_loader as kernels
from murho.model.engines.compiled.loader import LOADING, at_hand, compiled_code, load
from murho.model.engines.prediction import PredictOptions

if TYPE_CHECKING:
    from murho.model.posterior.posterior import Posterior


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_PROCESS", kernels._Process())


def test_once_it_is_loaded_it_is_at_hand_for_answers_and_for_nothing_else() -> None:
    with compiled_code(1):
        assert at_hand() is None
    loaded = load()
    assert load() is loaded
    assert at_hand() is None
    with compiled_code(1):
        assert at_hand() is loaded
    with pytest.raises(ZeroDivisionError), compiled_code(1):
        raise ZeroDivisionError
    assert at_hand() is None


def test_it_is_loaded_once_what_was_done_without_would_have_paid_for_it() -> None:
    for _ in range(2):
        with compiled_code(LOADING // 2):
            assert at_hand() is None
    with compiled_code(1):
        assert at_hand() is not None


def test_answers_are_the_same_with_and_without_it_to_single_precision(rent: Posterior) -> None:
    rows = np.zeros((20, rent.encoder.width), dtype=np.float32)
    rows += np.linspace(-1.0, 1.0, 20, dtype=np.float32)[:, None]
    without = rent.predict_encoded(rows, PredictOptions())
    load()
    answer = rent.predict_encoded(rows, PredictOptions())
    for name in ("mean", "std", "percentiles"):
        expected = getattr(without, name)
        np.testing.assert_allclose(getattr(answer, name), expected, rtol=0.0, atol=4e-6 * np.ptp(expected))


def test_the_answer_without_draws_is_the_same_to_the_bit_whatever_is_loaded(rent: Posterior) -> None:
    rows = np.linspace(-1.0, 1.0, 50 * rent.encoder.width, dtype=np.float32).reshape(50, -1)
    options = PredictOptions(samples=0)
    without = rent.predict_encoded(rows, options)
    load()
    assert np.array_equal(rent.predict_encoded(rows, options).mean, without.mean)


def test_who_answers_a_few_rows_does_not_load_the_compiler() -> None:
    few = (
        "import sys; from benchmarks.engine_peers.murho_posterior import posterior_of; "
        "from benchmarks.engine_peers.exchange import EngineTask; from model.prediction import PredictOptions; "
        "task = EngineTask(hidden=(8,)); "
        "assert len(posterior_of(task).predict_encoded(task.rows(20), PredictOptions()).mean) == 20; "
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", few], check=True, timeout=120)
