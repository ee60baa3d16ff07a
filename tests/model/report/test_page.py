"""The page: whole, safe, and without a network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from unittest import mock

import pytest

from murho.model.report import files as module
from murho.model.report.files import HOW_TO_GET_CHARTS, draw, html_page

VOID = {"meta", "br", "img", "link"}


class Balance(HTMLParser):
    """Checks that every element is closed, and collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, _attributes: object) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def text_of(page: str) -> str:
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    return parser.text


def test_the_page_has_every_section_and_asks_nothing_of_a_network(facts: dict[str, Any], rows: dict[str, Any]) -> None:
    page = html_page("rent", facts, draw(facts, rows), rows)
    text = text_of(page)
    for title in (
        "How good are its predictions?",
        "Reliability",
        "most surprising rows",
        "Where doubt comes from",
        "Training curves",
        "The table in short",
        "Numbers for a model card",
    ):
        assert title in text
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert re.findall(r'(?:src|href)=["\'](?!#)', re.sub(r'xlink:href="#', "", page)) == []
    assert "prefers-color-scheme: dark" in page
    assert page.count("<figure>") == 7
    assert len(page) < 600_000


def test_names_and_reasons_are_text_and_no_markup(facts: dict[str, Any], rows: dict[str, Any]) -> None:
    evil = "<script>alert(1)</script>"
    feature, *others = facts["table"]["features"]
    table = {**facts["table"], "features": [{**feature, "name": evil}, *others], "left_out": {evil: evil}}
    cells = [{**row, "cells": {**row["cells"], evil: evil}} for row in rows["surprising"]]
    page = html_page(evil, {**facts, "table": table}, [], {**rows, "surprising": cells})
    assert "<script" not in page
    assert evil in text_of(page)


def test_without_the_extra_the_page_says_how_to_get_charts(facts: dict[str, Any]) -> None:
    with mock.patch.object(module, "can_draw", return_value=False):
        assert HOW_TO_GET_CHARTS in text_of(html_page("rent", facts, []))


def test_a_checkpoint_without_held_out_rows_says_what_to_do(facts: dict[str, Any]) -> None:
    bare = {**facts, "held_out": None, "doubt": None, "scores": {}}
    assert "murho report NAME DATA" in text_of(html_page("rent", bare, []))


@pytest.mark.parametrize("interrupted", [True, False])
def test_an_interrupted_training_is_marked(facts: dict[str, Any], interrupted: bool) -> None:
    changed = {**facts, "training": {**facts["training"], "interrupted": interrupted}}
    assert ("was interrupted" in html_page("rent", changed, [])) is interrupted
