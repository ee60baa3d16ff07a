from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murho.service.predict import json_output
from murho.service.predict.json_output import encode_document

arrays = st.tuples(st.integers(0, 9), st.none() | st.integers(0, 4)).map(
    lambda shape: np.random.default_rng(0).normal(size=[length for length in shape if length is not None])
)
leaves = st.none() | st.text(max_size=3) | st.integers(-9, 9) | st.lists(st.integers(-9, 9), max_size=2) | arrays
documents = st.dictionaries(st.text(max_size=3), leaves | st.dictionaries(st.text(max_size=2), leaves, max_size=3))


@pytest.mark.parametrize("piece", [0, 1, 5])
@given(documents)
def test_pieces_make_what_the_encoder_makes(piece: int, document: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_output, "PIECE_VALUES", piece)
        patch.setattr(json_output, "JOIN_BYTES", 10)
        made = b"".join(encode_document(document))
    assert made == orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
