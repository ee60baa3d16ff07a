from __future__ import annotations

import gzip
import json

import pytest

from murho.service.errors import BadInputError
from murho.service.predict.foreign_bodies import foreign_form
from murho.service.predict.formats import reader_of
from murho.service.settings import Settings
from tests.service.support import ROW, SCHEMA

DOCUMENT = json.dumps({"inputs": [ROW]})
LARGE = json.dumps({"inputs": [ROW] * 2000})


@pytest.mark.parametrize("text", [DOCUMENT, LARGE, "a,b\n1,2\n"])
@pytest.mark.parametrize(
    ("encode", "advice"),
    [
        (lambda text: gzip.compress(text.encode()), "gzip data: send the header Content-Encoding: gzip"),
        (lambda text: text.encode("utf-16"), "UTF-16"),
        (lambda text: text.encode("utf-16-le"), "UTF-16"),
        (lambda text: text.encode("utf-16-be"), "UTF-16"),
        (lambda text: text.encode("utf-32-le"), "UTF-16 or UTF-32|UTF-16"),
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/csv"])
def test_a_body_in_another_form_is_told_what_it_looks_like(encode: object, advice: str, text: str, kind: str) -> None:
    body = encode(text)  # type: ignore[operator]
    with pytest.raises(BadInputError, match=advice):
        reader_of(kind).decode(body, {}, SCHEMA, Settings())


def test_ordinary_text_looks_like_nothing() -> None:
    for body in (b"", b"{", b'{"inputs": []}', b"\0\0\0\0", "é€,b".encode(), b"a\0"):
        assert foreign_form(body) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 2**70}, "Expected an integer from 0 to 9223372036854775807 (2^63 - 1), not 1.1805916207174113e+21."),
        ({"seed": 2**63}, "Expected an integer from 0 to 9223372036854775807 (2^63 - 1), not 9223372036854775808."),
        ({"samples": -1}, "Expected an integer, 0 or larger, not -1."),
        ({"samples": "many"}, "Expected an integer, 0 or larger, not the string 'many'."),
        ({"samples": True}, "Expected an integer, 0 or larger, not a boolean."),
        ({"percentiles": [1] * 101}, "Expected a list of at most 100 levels, not a list of 101."),
        ({"percentiles": [0]}, "Expected a number above 0 and below 100, not 0."),
        ({"percentiles": 5}, "Expected a list of at most 100 levels, not 5."),
        ({"thresholds": ["x"]}, "Expected a finite number, not the string 'x'."),
        ({"include": ["all"]}, 'Expected "draws" or "mc_error", not the string \'all\'.'),
        ({"noise": "no"}, "Expected true or false, not the string 'no'."),
    ],
)
def test_wrong_options_are_told_in_plain_words(options: dict[str, object], message: str) -> None:
    body = json.dumps({"inputs": [ROW], **options}).encode()
    with pytest.raises(BadInputError) as caught:
        reader_of("application/json").decode(body, {}, SCHEMA, Settings())
    assert [problem.message for problem in caught.value.problems] == [message]
