from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.model.data.schema import Feature, FeatureKind, Schema, Target
from murho.model.data.schema_inference import columns_from_table
from murho.model.encoding.encoder import ENCODINGS, Encoder
from murho.model.encoding.feature_encodings import Scaled
from murho.model.encoding.scaling import Scale
from murho.model.encoding.support_gaps import MARGIN, MOST_GAPS, SupportGaps
from murho.model.engines.prediction import PredictOptions
from murho.model.errors import CheckpointError
from murho.model.posterior.posterior import Posterior
from tests.model.conftest import make_table, present, train_quickly


def gaps_of(values: np.ndarray[Any, Any]) -> tuple[tuple[float, float], ...]:
    return SupportGaps.fit(values, Scale.fit(values)).ends


def encoder_of(column: np.ndarray[Any, Any], encoding: str = "standard") -> Encoder:
    low, high = np.nanmin(column), np.nanmax(column)
    feature = Feature("x", FeatureKind.NUMERIC, None, bool(np.isnan(column).any()), low, high, ())
    return Encoder.fit(Schema((feature,), Target("y", None), {}), {"x": column}, encoding=encoding)


def test_where_no_training_value_lies_is_a_gap() -> None:
    values = np.concatenate([np.linspace(0.0, 1.0, 101), [np.nan], np.linspace(3.0, 4.0, 101)])
    assert gaps_of(values) == ((1.0, 3.0),)


@pytest.mark.parametrize("values", [np.arange(4.0), np.array([0.0, 1.0]), np.ones(5), np.full(3, np.nan)])
def test_steps_of_a_grid_are_no_gaps(values: np.ndarray[Any, Any]) -> None:
    assert gaps_of(np.repeat(values, 20)) == ()


def test_a_value_left_out_of_a_grid_is_a_gap() -> None:
    assert gaps_of(np.array([2.0, 3.0, 5.0, 6.0, 7.0])) == ((3.0, 5.0),)


def test_numbers_at_the_ends_of_float64_leave_no_gap() -> None:
    assert SupportGaps.fit(np.array([-1.7e308, 1.7e308]), Scale(0.0, 1.0)).ends == ()


def test_of_many_gaps_the_widest_are_kept_in_order() -> None:
    wide = np.arange(MOST_GAPS + 10) % 7 + 10.0
    steps = np.stack([np.full(len(wide), 1e-3), wide], axis=1).ravel()
    column = np.concatenate([[0.0], np.cumsum(steps), [-1e-3, -2e-3]])
    gaps = SupportGaps.fit(column, Scale(0.0, 1.0))
    widths = [high - low for low, high in gaps.ends]
    assert len(gaps) == MOST_GAPS
    assert sorted(np.round(widths, 6)) == sorted(wide)[-MOST_GAPS:]
    assert list(gaps.ends) == sorted(gaps.ends)


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


def test_a_column_with_outliers_has_no_gaps() -> None:
    column = np.concatenate([np.linspace(0.0, 1.0, 200), np.linspace(3.0, 4.0, 200), [1000.0]])
    assert not encoder_of(column).gaps


def test_gaps_survive_json_and_are_left_out_where_there_are_none() -> None:
    column = np.concatenate([np.linspace(0.0, 1.0, 101), np.linspace(3.0, 4.0, 101)])
    encoder = encoder_of(column)
    data = encoder.to_json()
    assert data["gaps"] == {"x": [[1.0, 3.0]]}
    assert Encoder.from_json(data, encoder.schema) == encoder
    assert "gaps" not in encoder_of(np.arange(9.0)).to_json()


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


def test_doubt_grows_in_a_gap_as_the_slope_says_and_the_scatter_does_not() -> None:
    table = make_table()
    size = np.array([np.nan if cell is None else cell for cell in table["size"].to_pylist()])
    low, high = np.nanquantile(size, [0.3, 0.7])
    table = table.filter(~((size > low) & (size < high)))
    trained = train_quickly(table, members=2, noise="heteroscedastic", epochs=40)
    spec = replace(trained.spec, encoder=replace(trained.spec.encoder, gaps={}))
    posterior, older = trained.posterior, Posterior(spec, trained.tensors)
    low, high = max(posterior.encoder.gaps["size"].ends, key=lambda ends: ends[1] - ends[0])
    row = {name: column[:3].copy() for name, column in columns_from_table(table, posterior.schema).items()}
    row["size"] = np.array([low, (low + high) / 2.0, high])
    doubtful, certain = (each.predict(row, PredictOptions(samples=1024)) for each in (posterior, older))
    assert doubtful.epistemic_std is not None
    assert certain.epistemic_std is not None
    assert doubtful.aleatoric_std is not None
    part = posterior.encoder.parts[0]
    assert isinstance(part, Scaled)
    slope = present(present(posterior.spec.beyond).slope) * posterior.scale / part.scale.std
    expected = np.array([0.0, slope * 0.98 * (high - low) / 2.0 / 2.0**0.5, 0.0])
    grown = np.square(doubtful.epistemic_std) - np.square(certain.epistemic_std)
    np.testing.assert_allclose(grown, np.square(expected), rtol=0.2, atol=1e-4 * expected.max() ** 2)
    assert certain.aleatoric_std == pytest.approx(doubtful.aleatoric_std)
