from __future__ import annotations

from dataclasses import replace

import numpy as np

from murho.model.data.schema import Feature, FeatureKind, Schema, Target, UnfamiliarValue
from murho.model.encoding.encoder import Encoder
from murho.model.encoding.input_warnings import input_warnings
from murho.model.encoding.support_gaps import SupportGaps


def encoder(*, whitened: bool = True) -> Encoder:
    """Of two sensors that go together, a temperature that is never mild (an older checkpoint's gap), and a place."""
    generator = np.random.default_rng(0)
    load = generator.uniform(-1.0, 1.0, 400)
    columns = {
        "left": load,
        "right": load + 1e-3 * generator.normal(size=400),
        "heat": np.concatenate([generator.uniform(0.0, 1.0, 200), generator.uniform(9.0, 10.0, 200)]),
        "place": np.array(["A", "B"] * 200, dtype=object),
    }
    columns["heat"][[0, 1]] = 1.0, 9.0
    features = [
        Feature(name, FeatureKind.NUMERIC, unit, False, float(column.min()), float(column.max()), ())
        for (name, column), unit in zip(list(columns.items())[:3], [None, None, "degrees"], strict=True)
    ]
    place = Feature("place", FeatureKind.CATEGORICAL, None, False, None, None, ("A", "B"))
    schema = Schema((*features, place), Target("y", None), {})
    return replace(Encoder.fit(schema, columns, whitened=whitened), gaps={"heat": SupportGaps(((1.0, 9.0),))})


ROWS = {
    "left": np.array([0.5, 0.5, 0.5, 5.0, 0.5]),
    "right": np.array([0.5, -0.5, -0.5, 5.0, 0.5]),
    "heat": np.array([0.5, 0.5, 4.0, 0.5, 4.0]),
    "place": np.array(["A", "A", "A", "A", "C"], dtype=object),
}
IN_GAP = "4 degrees is in a gap of the training rows, between 1 and 9 degrees"


def test_each_kind_of_novelty_is_named_in_the_order_of_rows_and_features() -> None:
    found = [(item.row, item.feature, item.message) for item in input_warnings(encoder(), ROWS)]
    assert [item[:2] for item in found] == [
        (1, "right"),
        (2, "heat"),
        (3, "left"),
        (3, "right"),
        (4, "heat"),
        (4, "place"),
    ]
    assert found[0][2] == "its combination with 'left' is unlike all training rows; each value alone is ordinary"
    assert found[1][2] == found[4][2] == IN_GAP


def test_without_whitening_combinations_are_not_looked_at() -> None:
    found = input_warnings(encoder(whitened=False), ROWS)
    assert (1, "right") not in [(item.row, item.feature) for item in found]
    assert UnfamiliarValue(2, "heat", IN_GAP) in found


def test_no_more_are_listed_than_asked_for_and_these_are_the_first() -> None:
    every = input_warnings(encoder(), ROWS)
    for limit in range(len(every) + 1):
        assert input_warnings(encoder(), ROWS, limit) == every[:limit]


def test_rows_that_are_known_to_be_beyond_are_all_that_is_looked_at_for_gaps_and_combinations() -> None:
    every = input_warnings(encoder(), ROWS)
    of_encoded = ((rows := encoder().encode(ROWS)) < encoder().training_range[0]) | (rows > encoder().training_range[1])
    assert input_warnings(encoder(), ROWS, among=of_encoded.any(axis=1)) == every
    none = np.zeros(5, dtype=bool)
    assert input_warnings(encoder(), ROWS, among=none) == encoder().schema.outside(ROWS)
    for row in range(5):
        only = none.copy()
        only[row] = True
        found = [item for item in input_warnings(encoder(), ROWS, among=only) if item.row == row]
        assert found == [item for item in every if item.row == row]


def test_rows_like_the_training_rows_and_missing_cells_are_not_listed() -> None:
    rows = {name: column[:1].copy() for name, column in ROWS.items()}
    assert input_warnings(encoder(), rows) == []
    rows["heat"] = np.array([np.nan])
    assert input_warnings(encoder(), rows) == []
