from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murho.service.errors import BadInputError, TooLargeError
from murho.service.predict import json_pieces, json_structure
from murho.service.predict.envelope import PredictRequest, parse_document
from murho.service.predict.inputs import Inputs, parse_inputs
from murho.service.predict.json_pieces import parse_in_pieces
from tests.service.support import NAMES, ROW, SCHEMA

MAX_ROWS = 50


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "PIECE_BYTES", 60)
    monkeypatch.setattr(json_structure, "BLOCK_BYTES", 17)


def whole(body: bytes) -> tuple[PredictRequest, Inputs]:
    request = parse_document(body)
    return request, parse_inputs(request.inputs, SCHEMA, MAX_ROWS)


def pieces(body: bytes) -> tuple[PredictRequest, Inputs]:
    return parse_in_pieces(body, SCHEMA, MAX_ROWS)


def outcome(parse: Any, body: bytes) -> object:
    try:
        request, inputs = parse(body)
    except (BadInputError, TooLargeError) as error:
        return type(error)
    columns = {name: column.tolist() for name, column in inputs.columns.items()}
    shown = {name: ["NaN" if cell != cell else cell for cell in column] for name, column in columns.items()}
    return request.model_dump(exclude={"inputs"}), inputs.form, inputs.count, inputs.names, shown


cells: dict[str, st.SearchStrategy[Any]] = {
    "Weight": st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False),
    "Horsepower": st.none() | st.floats(0, 1),
    "Automatic": st.booleans(),
    "Year": st.none() | st.dates().map(str),
    "Origin/plant": st.sampled_from(["USA", "x", '",[{', "\\", '\\"', "é€"]),
}
rows = st.lists(st.fixed_dictionaries(cells), min_size=1, max_size=20)
inputs = (
    rows
    | rows.map(lambda made: [[row[name] for name in NAMES] for row in made])
    | rows.map(lambda made: {name: [row[name] for row in made] for name in NAMES})
)
options = st.fixed_dictionaries(
    {},
    optional={
        "samples": st.none() | st.integers(0, 9),
        "percentiles": st.lists(st.integers(1, 99), max_size=3),
        "thresholds": st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3),
        "noise": st.booleans(),
        "include": st.just(["draws"]),
    },
)
documents = st.tuples(inputs, options, st.booleans()).map(
    lambda made: orjson.dumps(
        {"seed": 3, "inputs": made[0], **made[1]}, option=orjson.OPT_INDENT_2 if made[2] else None
    )
)


@given(documents)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_good_document_is_the_same_in_pieces_and_whole(body: bytes) -> None:
    in_pieces = outcome(pieces, body)
    assert isinstance(in_pieces, tuple)
    assert in_pieces == outcome(whole, body)


@given(documents, st.data())
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_broken_document_is_refused_in_pieces_if_it_is_whole(body: bytes, data: st.DataObject) -> None:
    broken = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(broken) - 1))
        change = data.draw(st.sampled_from([b"", b",", b"[", b"]", b"{", b"}", b'"', b"\\", b" ", b"1", b"\xff", b":"]))
        broken[at : at + data.draw(st.integers(0, 2))] = change
        if not broken:
            break
    assert outcome(pieces, bytes(broken)) == outcome(whole, bytes(broken))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"[]",
        b"{}",
        b'{"inputs": 3}',
        b'{"inputs": []}',
        b'{"inputs": [ ]}',
        b'{"inputs": {}}',
        b'{"inputs": {"Weight": []}}',
        b'{"inputs": [1,]}',
        b'{"inputs": [,1]}',
        b'{"inputs": [1}}',
        b'{"inputs": [[1]], "inputs": [2]}',
        b'{"inputs": [[1]], "unknown": [2]}',
        b'{"inputs": [[1]]} trailing',
        b'{"inputs": [[1]]}}',
        b'{"inputs": [[NaN]]}',
        b'{"a": {"inputs": [[1]]}}',
        b'\xef\xbb\xbf{"inputs": [[1]]}',
    ],
)
def test_bad_documents_are_bad_in_pieces_too(body: bytes) -> None:
    assert outcome(pieces, body) is BadInputError
    assert outcome(whole, body) is BadInputError


def test_the_last_of_two_keys_counts_and_keys_may_be_escaped() -> None:
    row = orjson.dumps(list(ROW.values()))
    for body in (
        b'{"inputs": [1, 2], "inputs": [' + row + b"]}",
        b'{"\\u0069nputs": [' + row + b"]}",
        b'{"inputs" \n:\t[' + row + b"]} \n",
    ):
        assert outcome(pieces, body) == outcome(whole, body)
        assert isinstance(outcome(pieces, body), tuple)


@pytest.mark.parametrize("form", ["records", "matrix", "columns"])
def test_a_wrong_cell_is_found_where_it_is(form: str) -> None:
    made = [dict(ROW) for _ in range(40)]
    made[33]["Weight"] = "heavy"
    inputs: Any = {
        "records": made,
        "matrix": [list(row.values()) for row in made],
        "columns": {name: [row[name] for row in made] for name in NAMES},
    }[form]
    body = orjson.dumps({"inputs": inputs})
    with pytest.raises(BadInputError) as caught:
        pieces(body)
    with pytest.raises(BadInputError) as expected:
        whole(body)
    assert caught.value.problems == expected.value.problems


def test_a_row_of_another_form_is_found() -> None:
    made: list[Any] = [dict(ROW) for _ in range(40)]
    made[35] = list(ROW.values())
    with pytest.raises(BadInputError) as caught:
        pieces(orjson.dumps({"inputs": made}))
    assert caught.value.problems[0].pointer == "/inputs/35"


def test_what_is_beyond_the_limits_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_pieces, "PIECE_BYTES", 2**15)
    monkeypatch.setattr(json_structure, "BLOCK_BYTES", 2**18)
    many = b'{"inputs": [' + b"[]," * 200_000 + b"[]]}"
    deep = b'{"inputs": ' + b"[" * 300_000 + b"]" * 300_000 + b"}"
    text = b'{"inputs": [["' + b"x" * 500_000 + b'"]]}'
    digits = b'{"inputs": {"Weight": [' + b"1" * 500_000 + b"]}}"
    keys = b"{" + b",".join(b'"k%d":1' % index for index in range(50_000)) + b',"inputs":[[1]]}'
    blank = b'{"inputs":[[1]]' + b" " * 300_000 + b"}"
    loaded = orjson.loads
    largest = 0

    def watched(part: bytes) -> Any:
        nonlocal largest
        largest = max(largest, len(part))
        return loaded(part)

    monkeypatch.setattr(orjson, "loads", watched)
    for body, error, message in (
        (many, TooLargeError, "200001 rows"),
        (deep, BadInputError, "nested more than 32 deep"),
        (text, TooLargeError, "near byte 12 of the body takes more than"),
        (digits, TooLargeError, "near byte"),
        (keys, BadInputError, "more than 20000 parts"),
        (blank, TooLargeError, "without its rows takes"),
    ):
        with pytest.raises(error, match=message):
            pieces(body)
    assert largest <= json_pieces.MOST_REST_BYTES


def test_a_long_list_of_problems_is_not_made() -> None:
    with pytest.raises(BadInputError) as caught:
        pieces(orjson.dumps({"inputs": [{"no": 1}] * 50}))
    assert caught.value.more
    assert len(caught.value.problems) <= 50


def test_columns_of_a_million_cells_are_typed() -> None:
    count = 50
    made = {name: [value] * count for name, value in ROW.items()}
    _, found = pieces(orjson.dumps({"inputs": made}))
    assert found.columns["Weight"].dtype == np.float64
    assert found.columns["Origin/plant"].dtype == object
