"""A checkpoint written before `model/` had packages loads, and answers as it did then; its raw std is the std of then.

``tests/fixtures/checkpoints`` holds it, with answers of the code that wrote it: dates, categories, missing cells, a
piecewise encoding, whitening, a logarithm, mixture noise, a wide component, calibration, three members.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from murho.model.data.schema_inference import columns_from_table
from murho.model.engines.prediction import PredictOptions
from murho.model.posterior.posterior import Posterior
from tests.support import ROOT

CHECKPOINTS = ROOT / "tests" / "fixtures" / "checkpoints"
RECORDED: dict[str, Any] = json.loads((CHECKPOINTS / "rents-answers.json").read_text())


@pytest.mark.parametrize("engine", ["auto", "torch"])
@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: ", ".join(case["options"]) or "defaults")
def test_it_answers_as_before(engine: str, case: dict[str, Any]) -> None:
    posterior = Posterior.load(CHECKPOINTS / "rents" / "1", engine=engine)
    table = pa.Table.from_pylist(RECORDED["rows"])
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in case["options"].items()
    }
    columns, asked = columns_from_table(table, posterior.schema), PredictOptions(**options)
    answer, raw = (posterior.predict(columns, each) for each in (asked, replace(asked, calibrated=False)))
    expected = case["answer"]
    std = np.array(expected.get("std", expected["mean"]))
    for name, then in expected.items():
        if name != "mc_error":
            _assert_close(getattr(raw if name.endswith("std") else answer, name), np.array(then), std)
    for name, then in expected.get("mc_error", {}).items():
        _assert_close(getattr((raw if name == "std" else answer).mc_error, name), np.array(then), std)


def _assert_close(now: np.ndarray, then: np.ndarray, std: np.ndarray) -> None:
    """Within 1e-6 of the larger of the row's std and the value, the last digit of single precision."""
    spread = std.reshape(-1, *[1] * (then.ndim - 1))
    assert (np.abs(now - then) <= 1e-6 * np.maximum(np.abs(then), spread)).all()
