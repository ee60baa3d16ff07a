"""The seal: names and values of `model.json` may not change, its layout may."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from murho.model.checkpoint.checkpoint import SEAL, check_seal, sealed
from murho.model.errors import CheckpointError

FACTS: dict[str, Any] = {
    "name": "cars",
    "training": {"rows": 3, "note": "grün"},
    "numbers": np.array([0.1, 1e300], dtype=np.float64),
    "single": np.array([0.1], dtype=np.float32),
    "large": 2**63 - 1,
}


def test_what_is_sealed_is_read_back_and_the_seal_comes_last() -> None:
    read = json.loads(sealed(FACTS))
    check_seal(read)
    assert list(read) == [*FACTS, SEAL]


def test_order_and_indentation_may_change() -> None:
    read = json.loads(sealed(FACTS))
    check_seal(json.loads(json.dumps(dict(reversed(list(read.items()))), indent=7)))


@pytest.mark.parametrize("change", [{"name": "boats"}, {"more": 1}, {"numbers": [0.1, 1e299]}, {SEAL: 7}])
def test_a_change_breaks_it(change: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="damaged or edited"):
        check_seal(json.loads(sealed(FACTS)) | change)


def test_a_field_that_is_gone_breaks_it() -> None:
    read = json.loads(sealed(FACTS))
    del read["large"]
    with pytest.raises(CheckpointError, match="damaged or edited"):
        check_seal(read)


def test_without_a_seal_it_is_refused() -> None:
    with pytest.raises(CheckpointError, match="is missing"):
        check_seal({"name": "cars"})
