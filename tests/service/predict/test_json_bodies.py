"""JSON bodies: what the types of a schema read is what a look at every value reads, and the rest is told."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.model.errors import MurhoError
from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from murho.service.errors import BadInputError, TooLargeError
from murho.service.predict import json_bodies
from murho.service.predict.answers import Terms
from murho.service.predict.json_bodies import MOST_CONTAINERS, JSONCodec, encode_document, load_json
from murho.service.predict.routes import reader_of
from murho.service.settings import Settings
from tests.service.support import NAMES, ROW, SCHEMA

LIMITS = Settings(max_rows=50)
MOST = LIMITS.max_json_bytes
DOCUMENT = json.dumps({"inputs": [ROW]})


class Typed(json_bodies._Documents):
    """Reads documents by their types alone."""

    def __init__(self) -> None:
        super().__init__(SCHEMA)


def by_types(body: bytes) -> object:
    try:
        parsed = Typed().read(body, LIMITS)
    except MurhoError as error:
        return type(error)
    return None if parsed is None else shown(parsed)


def by_values(body: bytes) -> object:
    codec = JSONCodec()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_bodies._Documents, "read", lambda *_: None)
        try:
            return shown(codec.decode(body, Terms({}, SCHEMA, LIMITS)))
        except MurhoError as error:
            return type(error)


def shown(parsed: Any) -> object:
    inputs = parsed.inputs
    columns = {name: column.tolist() for name, column in inputs.columns.items()}
    cells = {name: ["NaN" if cell != cell else cell for cell in column] for name, column in columns.items()}
    return parsed.options, parsed.request.timeout, inputs.form, inputs.count, list(inputs.columns), cells


cells: dict[str, st.SearchStrategy[Any]] = {
    "Weight": st.integers(-5, 5) | st.integers(2**53, 2**70) | st.floats(allow_nan=False, allow_infinity=False),
    "Horsepower": st.none() | st.floats(0, 1),
    "Automatic": st.booleans(),
    "Year": st.none() | st.dates().map(str),
    "Origin/plant": st.sampled_from(["USA", "x", '",[{', "\\", '\\"', "é€", "4.0"]),
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
        "timeout": st.floats(0.1, 9.0),
        "include": st.just(["draws"]),
    },
)
documents = st.tuples(inputs, options, st.sampled_from([None, 2])).map(
    lambda made: json.dumps({"seed": 3, "inputs": made[0], **made[1]}, indent=made[2], ensure_ascii=False).encode()
)


@given(documents)
@settings(max_examples=100)
def test_a_good_document_is_read_by_its_types_as_by_its_values(body: bytes) -> None:
    found = by_types(body)
    assert isinstance(found, tuple)
    assert found == by_values(body)


@given(documents, st.data())
@settings(max_examples=300)
def test_what_types_read_of_a_broken_document_values_read_too(body: bytes, data: st.DataObject) -> None:
    broken = bytearray(body)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(broken) - 1))
        change = data.draw(st.sampled_from([b"", b",", b"[", b"]", b"{", b"}", b'"', b"\\", b" ", b"1", b"\xff", b":"]))
        broken[at : at + data.draw(st.integers(0, 2))] = change
        if not broken:
            break
    found = by_types(bytes(broken))
    assert found is None or found == by_values(bytes(broken))


def test_the_last_of_two_keys_counts_and_keys_may_be_escaped() -> None:
    row = orjson.dumps(list(ROW.values()))
    for body in (
        b'{"inputs": [' + row + b'], "samples": "x", "samples": 7}',
        b'{"\\u0069nputs": [' + row + b"]}",
        b'{"inputs" \n:\t[' + row + b"]} \n",
    ):
        assert isinstance(by_types(body), tuple)
        assert by_types(body) == by_values(body)


def test_names_with_quotes_and_one_feature_are_read() -> None:
    for name in ('5" "pipes"', "a\\b", "x", "ü", "inputs"):
        schema = Schema((Feature(name, FeatureKind.NUMERIC, None, True, 0.0, 1.0, ()),), Target("y", None), {})
        for rows_ in ([{name: 1}, {name: None}], [[1], [None]], {name: [1, None]}):
            parsed = JSONCodec().decode(orjson.dumps({"inputs": rows_}), Terms({}, schema, LIMITS))
            assert np.array_equal(parsed.inputs.columns[name], [1.0, np.nan], equal_nan=True)


@pytest.mark.parametrize("form", ["records", "matrix", "columns"])
def test_many_rows_are_read_as_a_few(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_bodies, "PIECE_CELLS", 10)
    made = [{**ROW, "Weight": 2000 + index} for index in range(40)]
    body = orjson.dumps({"inputs": rows_in(form, made)})
    assert isinstance(by_types(body), tuple)
    assert by_types(body) == by_values(body)
    made[33]["Weight"] = "heavy"
    with pytest.raises(BadInputError) as caught:
        JSONCodec().decode(orjson.dumps({"inputs": rows_in(form, made)}), Terms({}, SCHEMA, LIMITS))
    where = {"records": "33/Weight", "matrix": "33/0", "columns": "Weight/33"}[form]
    assert [problem.pointer for problem in caught.value.problems] == [f"/inputs/{where}"]


def rows_in(form: str, made: list[dict[str, Any]]) -> Any:
    if form == "matrix":
        return [list(row.values()) for row in made]
    return made if form == "records" else {name: [row[name] for row in made] for name in NAMES}


def test_a_large_document_is_refused_with_the_formats_for_large_tables() -> None:
    body = b'{"inputs": [[1]]' + b" " * 1000 + b"}"
    with pytest.raises(TooLargeError, match=r"1017 bytes; at most 1000 are read\..*Arrow, Parquet or CSV"):
        JSONCodec().decode(body, Terms({}, SCHEMA, Settings(max_json_bytes=1000)))


@pytest.mark.parametrize("container", [b"[],", b"{},", b"[["])
def test_many_lists_and_objects_are_refused_before_they_are_made(container: bytes) -> None:
    body = b'{"inputs": [' + container * MOST_CONTAINERS
    for read in (lambda: load_json(body, MOST), lambda: JSONCodec().decode(body, Terms({}, SCHEMA, Settings()))):
        with pytest.raises(TooLargeError, match=r"lists and objects; at most 100000 are read\. Send large tables as"):
            read()


def test_many_good_rows_are_read_by_their_types() -> None:
    row = json.dumps(list(ROW.values()))
    body = f'{{"inputs": [{",".join([row] * (MOST_CONTAINERS + 1))}]}}'.encode()
    assert JSONCodec().decode(body, Terms({}, SCHEMA, Settings())).inputs.count == MOST_CONTAINERS + 1


def test_nan_is_null_outside_of_texts_where_it_may_be() -> None:
    body = b'{"a": [NaN, 1], "NaN": "NaN \\" NaN"}'
    assert load_json(body, MOST, nan=True) == {"a": [None, 1], "NaN": 'NaN " NaN'}
    with pytest.raises(BadInputError, match="JSON has no NaN: send null"):
        load_json(body, MOST)


def test_a_text_that_is_never_closed_is_refused() -> None:
    # Work that grows with the square of its length would run into the test's time limit.
    text = b'{"a": NaN, "' + b'\\"' * 2**20
    with pytest.raises(BadInputError):
        load_json(text, MOST, nan=True)


def test_only_a_text_that_is_good_up_to_a_nan_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two million texts that are no JSON held up everybody for 0.3 s.
    monkeypatch.setattr(json_bodies, "STRINGS_AND_NAN", None)
    with pytest.raises(BadInputError):
        load_json(b'"' * 2**20, MOST, nan=True)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"inputs": [{"a": NaN}]}', "JSON has no NaN: send null for a value that is missing."),
        ('{"é": "ü", "a": nan}'.encode(), "JSON has no nan: send null"),
        (b'{"a": None}', "JSON has no None: send null"),
        (b'{"a": -Infinity}', "JSON has no Infinity, and inputs are finite"),
        (b'{"a": True}', "JSON writes true, not True."),
        (b"{'a': 1}", 'JSON has double quotes: "…"'),
        (b"[1]", 'Expected a JSON object such as {"inputs": [{…}]}, not a list.'),
        (b"", "The body is empty."),
    ],
)
def test_what_is_no_json_gets_a_hint(body: bytes, said: str) -> None:
    with pytest.raises(BadInputError) as caught:
        load_json(body, MOST)
    assert said in caught.value.problems[0].message


@pytest.mark.parametrize("text", [DOCUMENT, "a,b\n1,2\n"])
@pytest.mark.parametrize(
    ("encode", "advice"),
    [
        (lambda text: gzip.compress(text.encode()), "gzip data: send the header Content-Encoding: gzip"),
        (lambda text: text.encode("utf-16"), "UTF-16"),
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/csv"])
def test_a_body_in_another_form_is_told_what_it_looks_like(encode: Any, advice: str, text: str, kind: str) -> None:
    with pytest.raises(BadInputError, match=advice):
        reader_of(kind).decode(encode(text), Terms({}, SCHEMA, Settings()))


arrays = st.tuples(st.integers(0, 9), st.none() | st.integers(0, 4)).map(
    lambda shape: np.random.default_rng(0).normal(size=[length for length in shape if length is not None])
)
leaves = st.none() | st.text(max_size=3) | st.integers(-9, 9) | st.lists(st.integers(-9, 9), max_size=2) | arrays
answers = st.dictionaries(st.text(max_size=3), leaves | st.dictionaries(st.text(max_size=2), leaves, max_size=3))


@pytest.mark.parametrize("piece", [0, 1, 5])
@given(answers)
def test_pieces_make_what_the_encoder_makes(piece: int, document: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_bodies, "PIECE_VALUES", piece)
        made = b"".join(encode_document(document))
    assert made == orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
