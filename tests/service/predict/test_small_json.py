from __future__ import annotations

import pytest

from murho.service.errors import BadInputError, TooLargeError
from murho.service.predict.small_json import MOST_CONTAINERS, MOST_JSON_BYTES, load_json


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


@pytest.mark.parametrize("container", [b"[],", b"{},", b"[["])
def test_many_lists_and_objects_are_refused_before_they_are_made(container: bytes) -> None:
    with pytest.raises(TooLargeError, match="lists and objects; at most 100000 are read"):
        load_json(b'{"a": [' + container * MOST_CONTAINERS)


def test_only_a_text_that_is_good_up_to_a_nan_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two million texts that are no JSON held up everybody for 0.3 s.
    monkeypatch.setattr("murho.service.predict.small_json.STRINGS_AND_NAN", None)
    with pytest.raises(BadInputError):
        load_json(b'"' * 2**20)
