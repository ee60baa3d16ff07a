"""The page: whole, safe, and without a network."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any
from unittest import mock

import pytest

from murho.model.report import reports as module
from murho.model.report.reports import HOW_TO_GET_CHARTS, html_page
from murho.model.training.train import Trained

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


def test_the_page_has_every_section_and_asks_nothing_of_a_network(
    trained: Trained, facts: dict[str, Any], rows: list[dict[str, Any]]
) -> None:
    page = html_page("rent", trained.spec, facts, rows)
    text = text_of(page)
    for title in (
        "How good are its predictions?",
        "Reliability",
        "most surprising rows",
        "Training curves",
        "How was it made?",
        "Candidates tried",
    ):
        assert title in text
    assert "default-src 'none'" in page
    assert "<script" not in page
    links = re.findall(r'(?:src|href)=["\'](?!#)([^"\']*)', re.sub(r'xlink:href="#', "", page))
    assert links == ["https://github.com/murho/murho/blob/main/docs/page.md#the-report-of-a-training"]
    assert "prefers-color-scheme: dark" in page
    assert page.count("<figure") == 5
    assert len(page) < 400_000


def test_names_and_reasons_are_text_and_no_markup(
    trained: Trained, facts: dict[str, Any], rows: list[dict[str, Any]]
) -> None:
    evil, schema = "<script>alert(1)</script>", trained.spec.schema
    feature, *others = schema.features
    changed = replace(schema, features=(replace(feature, name=evil), *others), left_out={evil: evil})
    rows = [rows[0] | {"cells": [evil]}]
    spec = replace(trained.spec, schema=changed, encoder=replace(trained.spec.encoder, schema=changed))
    page = html_page(evil, spec, facts, rows)
    assert "<script" not in page
    assert text_of(page).count(evil) >= 6


def test_without_the_extra_the_page_says_how_to_get_charts(trained: Trained, facts: dict[str, Any]) -> None:
    with mock.patch.object(module, "find_spec", return_value=None):
        page = html_page("rent", trained.spec, facts)
    assert HOW_TO_GET_CHARTS in text_of(page)
    assert "<figure" not in page


def test_a_checkpoint_without_facts_says_what_to_do(trained: Trained) -> None:
    text = text_of(html_page("rent", trained.spec, {}))
    assert "murho report NAME DATA" in text
    assert "RMSE of the mean" in text


@pytest.mark.parametrize("interrupted", [True, False])
def test_an_interrupted_training_is_marked(trained: Trained, interrupted: bool) -> None:
    spec = replace(trained.spec, training={**trained.spec.training, "interrupted": interrupted})
    assert ("was interrupted" in html_page("rent", spec, {})) is interrupted
