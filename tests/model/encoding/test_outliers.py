"""Inputs that are zero for training rows: of odd combinations, and of rows that no training row is near."""

import numpy as np
import pytest

from murho.model.encoding.encoder import Encoder
from murho.model.encoding.outliers import Distances, unfamiliar_values
from murho.model.tables.schema import UnfamiliarValue
from tests.model.conftest import present
from tests.model.encoding.distribution_tables import (
    distribution_of,
    mixed_columns,
    numeric_columns,
    paired_columns,
    schema_of,
)

PAIRS = paired_columns()
PAIRED = distribution_of(PAIRS)


def with_a_gap() -> dict[str, np.ndarray]:
    """Two independent numbers; the first has no value between -1 and 1."""
    values = np.random.default_rng(0).uniform(1.0, 3.0, size=(400, 2))
    values[::2, 0] *= -1.0
    return numeric_columns(values)


GAP = with_a_gap()
GAPPED = distribution_of(GAP)


def rows(*values: tuple[float, ...]) -> dict[str, np.ndarray]:
    return numeric_columns(np.array(values, dtype=np.float64))


def test_the_input_of_the_combination_is_zero_for_like_rows_and_single_numbers_beyond() -> None:
    values = rows((0.0,) * 5, (0.0, 0.0, 0.0, 9.0, 0.0), (1.5, -1.5, 0.0, 0.0, 0.0), (1.5, -1.5, 0.0, 9.0, 0.0))
    measured = Distances.of(PAIRED, values)
    like, alone, combined, both = measured.combination
    assert like == alone == 0.0
    assert measured.outlier.tolist() == [False, True, True, True]
    assert combined == pytest.approx(np.log1p(measured.within[0, 2] - PAIRED.reach))
    assert both == pytest.approx(np.log1p(measured.within[0, 3] - PAIRED.reach - measured.excess[3]))
    assert 0.0 < both < combined
    training = Distances.of(PAIRED, PAIRS)
    assert not training.combination.any()
    assert not training.outlier.any()


def test_the_encoder_adds_the_difference_to_the_distance_of_that_number() -> None:
    encoder = Encoder.fit(schema_of(GAP), GAP, distribution=GAPPED)
    encoded = encoder.encode(rows((0.0, 2.0), (2.0, 2.0), (9.0, 2.0))).inputs
    place = encoder.names.index("x1 beyond the training rows")
    differences = present(Distances.of(GAPPED, rows((0.0, 2.0))).differences)
    assert encoded[0, place] == pytest.approx(differences[0, 0], rel=1e-6)
    assert encoded[1, place] == 0.0
    assert encoded[2, place] == pytest.approx((9.0 - GAP["x1"].max()) / GAP["x1"].std(), rel=1e-6)
    assert not encoder.encode(GAP).inputs[:, list(encoder.zero_in_training)].any()


COLUMNS = mixed_columns(500)
SCHEMA = schema_of(COLUMNS)
ENCODER = Encoder.fit(SCHEMA, COLUMNS, distribution=distribution_of(COLUMNS))


def unlike_rows(**changes: list[object]) -> dict[str, np.ndarray]:
    """Rows of the middle, with changes."""
    count = len(next(iter(changes.values())))
    usual = {"first": 0.0, "second": 1.0, "kind": "A", "lift": 0.0, "day": 18_500.0}
    return {
        name: np.array(changes.get(name, [cell] * count), dtype=COLUMNS[name].dtype) for name, cell in usual.items()
    }


def warned(columns: dict[str, np.ndarray]) -> list[UnfamiliarValue]:
    return unfamiliar_values(Distances.of(present(ENCODER.distribution), columns), SCHEMA, columns)


def test_a_number_far_beyond_its_range_is_told_with_side_and_range() -> None:
    barely = COLUMNS["day"].max() + 10.0
    unseen, found = warned(unlike_rows(day=[18_500.0, barely, 25_000.0], kind=["Z", "A", "A"]))
    assert (found.row, found.feature) == (2, "day")
    assert "is above the training range" in found.message
    assert "was not seen in training" in unseen.message


def test_a_broken_combination_is_told_with_its_partner() -> None:
    found = warned(unlike_rows(first=[2.0], second=[0.4]))
    said = "its combination with {} is unlike the training rows"
    assert {(item.feature, item.message) for item in found} <= {
        ("first", said.format("'second'")),
        ("second", said.format("'first'")),
    }
    assert found


def test_a_row_in_a_gap_is_told_with_what_the_nearest_rows_have() -> None:
    columns = {"first": np.concatenate([np.linspace(1.0, 3.0, 200), np.linspace(7.0, 9.0, 200)])}
    columns["day"] = np.random.default_rng(0).integers(18_000, 19_000, 400).astype(np.float64)
    schema, distribution = schema_of(columns), distribution_of(columns)
    asked = {"first": np.array([2.0, 4.0]), "day": np.array([18_500.0, 18_500.0])}
    (found,) = unfamiliar_values(Distances.of(distribution, asked), schema, asked)
    assert (found.row, found.feature) == (1, "first")
    assert found.message.startswith("the row is far from every training row; the nearest ones have about 2.")


def test_a_missing_cell_is_told_where_it_is_imputed() -> None:
    columns = unlike_rows(lift=[np.nan], kind=[None])
    assert [(item.feature, item.message.partition(";")[0]) for item in warned(columns)] == [
        ("kind", "the cell is missing"),
        ("lift", "the cell is missing"),
    ]
    refusing = schema_of(COLUMNS, imputed=False)
    assert unfamiliar_values(Distances.of(present(ENCODER.distribution), columns), refusing, columns) == []
