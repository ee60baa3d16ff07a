from __future__ import annotations

from typing import Any

import orjson
import pytest

from murho.model.tables.schema import Target
from murho.service.errors import BadInputError
from murho.service.predict.envelope import parse_document, predict_options

NUMBER = Target("Consumption", "mpg")


def problems(body: bytes | dict[str, Any]) -> dict[str, str]:
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    with pytest.raises(BadInputError) as caught:
        predict_options(parse_document(content), 256, 4096, NUMBER)
    return {problem.pointer: problem.message for problem in caught.value.problems}


def test_only_the_rows_are_required() -> None:
    document = parse_document(b'{"inputs": [[1]]}')
    options = predict_options(document, 256, 4096, NUMBER)
    assert document.inputs == [[1]]
    assert (options.samples, options.percentiles, options.seed) == (256, (5.0, 50.0, 95.0), None)
    assert (options.noise, options.calibrated, options.thresholds, options.draws) == (True, True, (), False)


def test_null_is_an_option_that_is_not_given() -> None:
    names = ("samples", "percentiles", "seed", "noise", "calibrated", "thresholds", "include")
    document = parse_document(orjson.dumps({"inputs": [[1]], **dict.fromkeys(names)}))
    assert predict_options(document, 256, 4096, NUMBER) == predict_options(
        parse_document(b'{"inputs": 1}'), 256, 4096, NUMBER
    )


def test_options_are_read() -> None:
    document = parse_document(
        b'{"inputs": 1, "samples": 0, "percentiles": [2.5, 97.5], "seed": 9223372036854775807, "noise": false,'
        b'"calibrated": false,'
        b'"thresholds": [20, -1e300], "include": ["draws"]}'
    )
    options = predict_options(document, 256, 4096, NUMBER)
    assert (options.samples, options.percentiles, options.seed) == (0, (2.5, 97.5), 2**63 - 1)
    assert (options.noise, options.calibrated, options.thresholds) == (False, False, (20.0, -1e300))
    assert options.draws
    assert not options.mc_error
    both = predict_options(parse_document(b'{"inputs": 1, "include": ["mc_error", "draws"]}'), 256, 4096, NUMBER)
    assert both.mc_error
    assert both.draws


def test_the_default_number_of_samples_respects_the_limit() -> None:
    assert predict_options(parse_document(b'{"inputs": 1}'), 256, 100, NUMBER).samples == 100


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  ",
        b"{",
        b"[1]",
        b'"x"',
        b"null",
        b'{"inputs": [[NaN]]}',
        b'{"inputs": [[Infinity]]}',
        b'{"inputs": [[1e999]]}',
        b'{"inputs": [[' + b"9" * 400 + b"]]}",
        b'{"inputs": "\xff"}',
        b'{"inputs": "\\ud800"}',
        b"\xef\xbb\xbf{}",
        b"[" * 100_000,
        b'{"inputs":' * 5000 + b"1" + b"}" * 5000,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_is_no_strict_json_object_is_refused_as_a_whole(body: bytes) -> None:
    assert list(problems(body)) == [""]


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"samples": -1}, "/samples"),
        ({"samples": 4097}, "/samples"),
        ({"samples": 1.5}, "/samples"),
        ({"samples": True}, "/samples"),
        ({"samples": "3"}, "/samples"),
        ({"seed": -1}, "/seed"),
        ({"seed": 2**63}, "/seed"),
        ({"seed": 1e30}, "/seed"),
        ({"percentiles": [0]}, "/percentiles/0"),
        ({"percentiles": [5, 100]}, "/percentiles/1"),
        ({"percentiles": [5e-324]}, "/percentiles/0"),
        ({"percentiles": ["5"]}, "/percentiles/0"),
        ({"percentiles": [True]}, "/percentiles/0"),
        ({"percentiles": 5}, "/percentiles"),
        ({"percentiles": [5] * 101}, "/percentiles"),
        ({"thresholds": [None]}, "/thresholds/0"),
        ({"thresholds": ["x"] * 1_000_000}, "/thresholds"),
        ({"noise": 1}, "/noise"),
        ({"noise": "true"}, "/noise"),
        ({"calibrated": 0}, "/calibrated"),
        ({"calibrated": "false"}, "/calibrated"),
        ({"include": ["weights"]}, "/include/0"),
        ({"include": "draws"}, "/include"),
        ({"sample": 3}, "/sample"),
        ({"a/b": 3}, "/a~1b"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_wrong_options_are_named(options: dict[str, Any], pointer: str) -> None:
    assert list(problems({"inputs": [[1]], **options})) == [pointer]


def test_missing_rows_are_named() -> None:
    assert list(problems({"samples": 3})) == ["/inputs"]


def test_many_unknown_options_are_counted() -> None:
    with pytest.raises(BadInputError) as caught:
        parse_document(orjson.dumps({f"option {index}": 1 for index in range(100_000)}))
    assert len(caught.value.problems) == 50
    assert caught.value.total == 100_000
