"""How features become inputs, and which of them become none."""

from __future__ import annotations

import pytest

from murho.model.encoding.encoder import InputChoice


@pytest.mark.parametrize(
    ("unread", "by_all"),
    [((), ()), ((("a", "b"),), ("a", "b")), ((("a", "b"), ("b", "c")), ("b",)), ((("a",), ()), ())],
)
def test_a_feature_is_no_input_if_no_member_reads_it(
    unread: tuple[tuple[str, ...], ...], by_all: tuple[str, ...]
) -> None:
    assert InputChoice("standard", unread=unread).unread_by_all == by_all
