from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murho.service.predict import json_structure
from murho.service.predict.json_structure import MAX_DEPTH, StructureError, outline, skip_blanks, split

if TYPE_CHECKING:
    from collections.abc import Iterator

texts = st.text(alphabet='a"\\[]{},: é€\n', max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=25,
)


blocks = pytest.mark.parametrize("block", [1, 2, 3, 7, 1000])


@contextmanager
def blocks_of(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_structure, "BLOCK_BYTES", size)
        yield


def dumped(value: object, *, indent: bool) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 if indent else 0)


@blocks
@settings(max_examples=40)
@given(st.lists(values, max_size=8), st.integers(1, 40), st.booleans())
def test_the_pieces_of_a_list_are_the_list(block: int, elements: list[object], size: int, indent: bool) -> None:
    body = dumped(elements, indent=indent)
    with blocks_of(block):
        found = split(body, 1, len(body) - 1, size)
    parsed = [orjson.loads(b"[" + body[begin:end] + b"]") for begin, end in found.pieces]
    assert found.count == len(elements)
    assert all(parsed)
    assert [element for piece in parsed for element in piece] == elements
    longest = max((len(part) for begin, end in found.pieces for part in [body[begin:end]]), default=0)
    largest = max((len(dumped([element], indent=indent)) for element in elements), default=0)
    assert longest <= 2 * size + largest + 2


@blocks
@settings(max_examples=40)
@given(st.dictionaries(texts, values, max_size=6), st.booleans(), texts)
def test_an_outline_has_the_members_of_an_object(
    block: int, members: dict[str, object], indent: bool, after: str
) -> None:
    body = dumped(members, indent=indent)
    with blocks_of(block):
        found = outline(body + after.encode(), 1, len(body) + len(after.encode()), most=100)
    assert len(found.commas) == max(0, len(members) - 1)
    shown = [orjson.loads(body[begin : end + 1]) for begin, end in found.containers]
    assert shown == [value for value in members.values() if isinstance(value, list | dict)]


def test_what_is_not_closed_nested_too_deep_or_too_much_is_said() -> None:
    for body in (b'["a', b"[[1", b'{"a": [1, 2', b'["\\"]'):
        with pytest.raises(StructureError, match="isn't closed"):
            split(body, 1, len(body), 10)
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert split(deep, 0, len(deep), 10).count == 1
    deep = b"[" + deep + b"]"
    with pytest.raises(StructureError, match="nested more than"):
        split(deep, 0, len(deep), 10)
    with pytest.raises(StructureError, match="more than 3 parts"):
        outline(b"1,2,3,4,5", 0, 9, most=3)


def test_blanks_are_skipped() -> None:
    assert skip_blanks(b" \n\t\r x ", 0, 7) == 5
    assert skip_blanks(b"    ", 1, 4) == 4


@blocks
@given(st.text(alphabet='\\"a,', max_size=12))
def test_quotes_behind_backslashes_end_texts_or_do_not(block: int, text: str) -> None:
    body = f'["{text}",1]'.encode()
    try:
        elements = orjson.loads(body)
    except orjson.JSONDecodeError:
        return
    with blocks_of(block):
        assert split(body, 1, len(body) - 1, 1).count == len(elements)
