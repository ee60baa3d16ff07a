"""Gaps of older checkpoints: read, and answered as ever."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.data.schema import Feature, FeatureKind, Schema, Target
from murho.model.encoding.encoder import Encoder
from murho.model.encoding.encodings import ENCODINGS
from murho.model.encoding.support_gaps import MARGIN, SupportGaps
from murho.model.errors import CheckpointError


def encoder_of(column: np.ndarray[Any, Any], encoding: str = "standard") -> Encoder:
    """The encoder of an older checkpoint, with a gap."""
    low, high = np.nanmin(column), np.nanmax(column)
    feature = Feature("x", FeatureKind.NUMERIC, None, bool(np.isnan(column).any()), low, high, ())
    fitted = Encoder.fit(Schema((feature,), Target("y", None), {}), {"x": column}, encoding=encoding)
    return replace(fitted, gaps={"x": SupportGaps(((1.0, 3.0),))})


@given(st.floats(0.0, 1.0), st.floats(1e-3, 1e3))
def test_the_distance_is_that_of_two_lines_weighted_by_their_precision(share: float, width: float) -> None:
    low, high = -2.0, -2.0 + width
    value = low + share * (high - low)
    above, below = value - low - MARGIN * width, high - value - MARGIN * width
    expected = (above**-2 + below**-2) ** -0.5 if above > 0 and below > 0 else 0.0
    gaps = SupportGaps(((-5.0, -4.0), (low, high), (high, high + 1.0)))
    assert gaps.distance(np.array([value]))[0] == pytest.approx(expected, rel=1e-9, abs=1e-9 * width)


def test_outside_of_gaps_and_for_missing_cells_the_distance_is_zero() -> None:
    gaps = SupportGaps(((1.0, 2.0), (2.0, 4.0)))
    values = np.array([np.nan, -np.inf, -1.0, 1.0, 1.009, 2.0, 3.99, 4.0, 9.0, np.inf])
    np.testing.assert_array_equal(gaps.distance(values), 0.0)
    assert gaps.around(3.0) == (2.0, 4.0)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_input_beyond_the_training_rows_is_zero_for_them_and_not_in_gaps(encoding: str) -> None:
    column = np.concatenate([np.linspace(0.0, 1.0, 101), np.linspace(3.0, 4.0, 101), [np.nan]])
    encoder = encoder_of(column, encoding)
    (at,) = encoder.range_distance_columns
    assert not encoder.encode({"x": column})[:, at].any()
    middle = encoder.encode({"x": np.array([2.0, 1.5, 5.0])})[:, at]
    halfway, aside = 0.98 * 0.5**0.5, (0.48**-2 + 1.48**-2) ** -0.5
    np.testing.assert_allclose(middle * np.nanstd(column), [halfway, aside, 1.0], rtol=1e-5)
    assert list(encoder.zero_in_training) == [at]


def test_new_encoders_have_none() -> None:
    column = np.concatenate([np.linspace(0.0, 1.0, 101), np.linspace(3.0, 4.0, 101)])
    feature = Feature("x", FeatureKind.NUMERIC, None, missing=False, minimum=0.0, maximum=4.0, categories=())
    encoder = Encoder.fit(Schema((feature,), Target("y", None), {}), {"x": column})
    assert not encoder.gaps
    assert "gaps" not in encoder.to_json()


def test_gaps_survive_json() -> None:
    column = np.concatenate([np.linspace(0.0, 1.0, 101), np.linspace(3.0, 4.0, 101)])
    encoder = encoder_of(column)
    data = encoder.to_json()
    assert data["gaps"] == {"x": [[1.0, 3.0]]}
    assert Encoder.from_json(data, encoder.schema) == encoder


@pytest.mark.parametrize(
    ("gaps", "message"),
    [
        ([[1.0, 3.0]], "encoding.gaps"),
        ({"z": [[1.0, 3.0]]}, "encoding.gaps"),
        ({"x": []}, "encoding.gaps.x"),
        ({"x": [[1.0]]}, r"encoding.gaps.x\[0\]"),
        ({"x": [[3.0, 1.0]]}, r"encoding.gaps.x\[0\]"),
        ({"x": [[1.0, 3.0], [2.0, 4.0]]}, r"encoding.gaps.x\[1\]"),
        ({"x": [["a", 3.0]]}, r"encoding.gaps.x\[0\]"),
    ],
)
def test_broken_gaps_are_refused_by_field(gaps: object, message: str) -> None:
    encoder = encoder_of(np.concatenate([np.linspace(0.0, 1.0, 101), np.linspace(3.0, 4.0, 101)]))
    data = copy.deepcopy(encoder.to_json()) | {"gaps": gaps}
    with pytest.raises(CheckpointError, match=message):
        Encoder.from_json(data, encoder.schema)
