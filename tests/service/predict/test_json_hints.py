"""Hints at words that are no JSON."""

from __future__ import annotations

import orjson
import pytest

from murho.service.predict.json_hints import json_hint


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"inputs": [{"a": NaN}]}', "JSON has no NaN: send null for a value that is missing."),
        ('{"é": "ü", "a": nan}'.encode(), "JSON has no nan: send null"),
        (b"[1, None]", "JSON has no None: send null"),
        (b"[-Infinity]", "JSON has no Infinity, and inputs are finite"),
        (b"[True]", "JSON writes true, not True."),
        (b"{'a': 1}", 'JSON has double quotes: "…"'),
        (b"[1,]", None),
        (b"", None),
    ],
)
def test_a_word_that_is_no_json_gets_a_hint(body: bytes, said: str | None) -> None:
    with pytest.raises(orjson.JSONDecodeError) as caught:
        orjson.loads(body)
    hint = json_hint(caught.value)
    assert hint is None if said is None else (hint or "").startswith(said)
