"""Options and answers: plain data with the contract's defaults."""

from __future__ import annotations

import subprocess
import sys

from murho.model.predictive.prediction import PredictOptions


def test_unasked_it_is_256_draws_of_a_new_observation_calibrated_and_three_percentiles() -> None:
    options = PredictOptions()
    assert (options.samples, options.percentiles, options.seed) == (256, (5.0, 50.0, 95.0), None)
    assert options.noise
    assert options.calibrated
    assert options.thresholds == ()
    assert not options.draws
    assert not options.mc_error


def test_it_brings_neither_numpy_nor_torch() -> None:
    code = (
        "import sys, murho.model.predictive.prediction; "
        "print([name for name in ('torch', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
