"""The options of `murho predict` are read as they are meant."""

from __future__ import annotations

import subprocess
import sys

import pytest

from murho.cli.predict import predict, require_fitting
from murho.model.errors import OptionError
from murho.model.python.table_scoring import stored_schema
from tests.rents import CHECKPOINTS, RENTS

pytestmark = pytest.mark.fast


def test_an_option_of_the_other_kind_of_target_is_refused_before_the_table_is_read() -> None:
    with pytest.raises(OptionError, match="--coverage: 'rent' is a number: leave it out"):
        predict(RENTS / "no such file.csv", "rents", str(CHECKPOINTS), coverage=0.8)
    require_fitting(stored_schema(RENTS), {"--percentiles", "--thresholds", "--no-noise"})


def test_help_takes_no_torch_no_numpy_and_no_ray() -> None:
    code = "import sys, murho.cli.predict; print([name for name in ('torch', 'numpy', 'ray') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
