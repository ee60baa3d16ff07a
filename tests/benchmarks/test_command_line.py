"""Lists on the command line, as argparse is given them."""

from __future__ import annotations

import argparse

import pytest

from benchmarks.command_line import numbers, pairs, positive, some_of


def test_names_are_of_those_known_in_the_order_given() -> None:
    read = some_of(("ant", "bee", "cat"), "animal")
    assert read("cat, ant") == ["cat", "ant"]
    assert read("") == []
    with pytest.raises(argparse.ArgumentTypeError, match="no animal is called 'dog': choose from ant, bee, cat"):
        read("ant,dog")


def test_numbers_are_sorted_and_each_once() -> None:
    assert numbers("32,1,32") == [1, 32]
    with pytest.raises(argparse.ArgumentTypeError, match="at least 1, not 0"):
        numbers("1,0")


@pytest.mark.parametrize("text", ["0", "-3"])
def test_a_count_is_at_least_one(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"at least 1, not {text}"):
        positive(text)


def test_pairs_stay_as_they_are_written() -> None:
    read = pairs("table", "rows x inputs, such as 1000x8")
    assert read("50000x10, 1000x8") == [(50000, 10), (1000, 8)]


@pytest.mark.parametrize("text", ["8", "0x8", "8x0", "-1x8", "1x2x3", "", "1e3x8"])
def test_what_is_no_pair_is_shown_with_how_one_is_written(text: str) -> None:
    read = pairs("table", "rows x inputs, such as 1000x8")
    with pytest.raises(argparse.ArgumentTypeError, match=rf"'{text}' is no table: write .*1000x8"):
        read(f"5x5,{text}")
