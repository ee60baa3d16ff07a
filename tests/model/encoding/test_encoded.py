"""What the encoder found out about rows goes with their inputs."""

from __future__ import annotations

import numpy as np
import pytest

from murho.model.encoding.encoder import Encoded, Encoder
from murho.model.encoding.feature_distribution import fit_feature_distribution
from murho.model.encoding.imputation import IMPUTATIONS
from tests.model.encoding.distribution_tables import mixed_columns, schema_of

COLUMNS = mixed_columns(500)
SCHEMA = schema_of(COLUMNS)
ENCODER = Encoder.fit(SCHEMA, COLUMNS, distribution=fit_feature_distribution(SCHEMA, COLUMNS))


def asked() -> dict[str, np.ndarray]:
    """An ordinary row, one a little beyond a range, one far beyond it, an odd combination and an unseen category."""
    return {
        "first": np.array([0.0, 0.0, 0.0, 2.0, 0.0]),
        "second": np.array([1.0, 1.0, 1.0, 0.4, 1.0]),
        "kind": np.array(["A", "A", "A", "A", "Z"], dtype=object),
        "lift": np.zeros(5),
        "day": np.array([18_500.0, COLUMNS["day"].max() + 10.0, 25_000.0, 18_500.0, 18_500.0]),
    }


def test_one_number_barely_beyond_its_range_makes_no_row_unlike() -> None:
    encoded = ENCODER.encode(asked())
    assert encoded.beyond.tolist() == [False, True, True, True, True]
    assert encoded.unlike.tolist() == encoded.told.tolist() == [False, False, True, True, True]


def test_training_rows_are_neither_unlike_nor_beyond() -> None:
    encoded = ENCODER.encode(COLUMNS)
    assert not (encoded.beyond | encoded.unlike | encoded.told).any()


def test_without_a_distribution_rows_beyond_the_training_range_are_unlike() -> None:
    encoded = Encoder.fit(schema_of(COLUMNS, imputed=False), COLUMNS).encode(asked())
    assert encoded.unlike.tolist() == encoded.beyond.tolist() == [False, True, True, False, True]


def test_of_copies_a_row_is_unlike_if_all_are_and_there_is_something_to_tell_of_it() -> None:
    columns = asked() | {"lift": np.full(5, np.nan)}
    encoded = ENCODER.encode_copies(columns)
    assert encoded.inputs.shape == (IMPUTATIONS, 5, ENCODER.width)
    assert encoded.beyond.shape == (IMPUTATIONS, 5)
    assert encoded.unlike.tolist() == [False, False, True, True, True]
    assert encoded.told.all()


def test_pieces_have_each_row_once_as_it_is_alone() -> None:
    columns = asked()
    columns["lift"][[1, 3]] = np.nan
    (complete, plain), (incomplete, copies) = ENCODER.encode_pieces(columns)
    assert (complete.tolist(), incomplete.tolist()) == ([0, 2, 4], [1, 3])
    np.testing.assert_array_equal(plain.inputs, ENCODER.encode(asked())[np.array([0, 2, 4])].inputs)
    alone = ENCODER.encode_copies({name: column[3:4] for name, column in columns.items()})
    np.testing.assert_allclose(copies[1:].inputs, alone.inputs, rtol=1e-6)
    ((every, whole),) = ENCODER.encode_pieces(asked())
    assert every.tolist() == list(range(5))
    assert len(whole) == 5


@pytest.mark.parametrize("rows", [slice(1, 3), np.array([4, 0])])
def test_some_of_the_rows_keep_what_is_known_of_them(rows: slice | np.ndarray) -> None:
    encoded, copies = ENCODER.encode(asked()), ENCODER.encode_copies(asked() | {"lift": np.full(5, np.nan)})
    for every in (encoded, copies):
        part = every[rows]
        np.testing.assert_array_equal(part.inputs, every.inputs[..., rows, :])
        np.testing.assert_array_equal(part.beyond, every.beyond[..., rows])
        np.testing.assert_array_equal(part.unlike, every.unlike[rows])
        assert len(part) == 2


def test_inputs_alone_are_like_the_training_rows() -> None:
    encoded = Encoded.like(np.zeros((3, 2), dtype=np.float32))
    assert len(encoded) == 3
    assert not (encoded.beyond | encoded.unlike | encoded.told).any()
