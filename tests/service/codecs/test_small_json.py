from __future__ import annotations

import pytest

from murho.service.codecs.small_json import MOST_JSON_BYTES, load_json
from murho.service.errors import BadInputError, TooLargeError


def test_nan_is_null_outside_of_texts() -> None:
    assert load_json(b'{"a": [NaN, 1], "NaN": "NaN \\" NaN"}') == {"a": [None, 1], "NaN": 'NaN " NaN'}


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"NaN", b"{", b'{"a": Infinity}', b'{"a": NaNs}', b'{"a": "\\ud800"}', b"\xff"]
)
def test_anything_but_an_object_is_refused(text: bytes) -> None:
    with pytest.raises(BadInputError):
        load_json(text)


def test_a_long_text_is_refused() -> None:
    with pytest.raises(TooLargeError):
        load_json(b" " * (MOST_JSON_BYTES + 1))


def test_a_text_that_is_never_closed_is_refused() -> None:
    # Work that grows with the square of its length would run into the test's time limit.
    text = b'{"a": NaN, "' + b'\\"' * (MOST_JSON_BYTES // 2 - 10)
    with pytest.raises(BadInputError):
        load_json(text)
