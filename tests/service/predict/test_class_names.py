from __future__ import annotations

import numpy as np
import orjson

from murho.model.predictive.prediction import Unit
from murho.service.predict.class_names import ClassNames
from murho.service.predict.json_output import PIECE_VALUES, encode_document

CLASSES = ("a", 'b"', "ü")


def test_a_document_has_names_for_indices_and_lists_for_sets() -> None:
    codes, sets = np.array([2, 0, 1]), np.array([[True, True, False], [False, False, True], [False, True, True]])
    document = {"one": ClassNames(codes, Unit.CLASS, CLASSES), "set": {"of": ClassNames(sets, Unit.CLASS_SET, CLASSES)}}
    expected = {"one": ["ü", "a", 'b"'], "set": {"of": [["a", 'b"'], ["ü"], ['b"', "ü"]]}}
    assert b"".join(encode_document(document)) == orjson.dumps(expected)


def test_a_long_document_is_written_in_pieces_like_a_short_one() -> None:
    rows = 2 * PIECE_VALUES + 3
    chance = np.random.default_rng(0)
    codes, sets = chance.integers(3, size=rows), chance.random((rows, 3)) < 0.5
    document = {"one": ClassNames(codes, Unit.CLASS, CLASSES), "set": ClassNames(sets, Unit.CLASS_SET, CLASSES)}
    expected = {
        "one": [CLASSES[code] for code in codes],
        "set": [[CLASSES[index] for index in np.flatnonzero(row)] for row in sets],
    }
    assert b"".join(encode_document(document)) == orjson.dumps(expected)
