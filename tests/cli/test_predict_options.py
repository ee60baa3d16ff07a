"""The options that `murho predict` has with every engine: the same in each, and read as they are meant."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from murho.cli.predict import predict, read_asked
from murho.model.errors import OptionError
from murho.model.predictive.prediction import PredictOptions
from murho.ray import predict_command
from murho.ray.scoring_job import schema_of_checkpoint
from tests.rents import RENTS

pytestmark = pytest.mark.fast


def test_the_command_of_each_engine_has_all_of_them() -> None:
    shared = inspect.signature(read_asked).parameters
    for command in (predict, predict_command.predict):
        options = inspect.signature(command).parameters
        assert {name: options[name].default for name in shared} == {name: shared[name].default for name in shared}


def test_without_options_the_defaults_are_asked() -> None:
    asked = read_asked()
    assert asked.options == PredictOptions()
    assert (asked.given, asked.warnings, asked.keep_inputs) == (frozenset(), False, False)


def test_what_is_given_is_asked_and_remembered_as_given() -> None:
    asked = read_asked(samples=8, percentiles="10,90", thresholds="20", raw=True, noise=False, seed=3)
    expected = PredictOptions(8, (10.0, 90.0), 3, noise=False, thresholds=(20.0,), calibrated=False)
    assert asked.options == expected
    assert asked.given == {"percentiles", "thresholds", "no_noise"}
    schema = schema_of_checkpoint(RENTS)
    asked.require_fitting(schema)
    with pytest.raises(OptionError, match="--coverage"):
        read_asked(coverage=0.8).require_fitting(schema)


@pytest.mark.parametrize("module", ["murho.cli.predict", "murho.ray.predict_command"])
def test_help_takes_no_torch_no_numpy_and_no_ray(module: str) -> None:
    code = f"import sys, {module}; print([name for name in ('torch', 'numpy', 'ray') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
