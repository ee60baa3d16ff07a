"""The charts: which there are, that they are Vega-Lite that draws, and that pictures fit a light and a dark page."""

from __future__ import annotations

import json
import re
from typing import Any
from unittest import mock

import pytest

from murho.model.report import files as page
from murho.model.report.charts import charts
from murho.model.report.files import draw


def test_there_is_a_chart_for_each_question(facts: dict[str, Any], rows: dict[str, Any]) -> None:
    names = ["predicted", "reliability", "coverage", "doubt", "importance", "shares", "curves"]
    screened = facts | {"importance": facts["importance"] | {"of_features": 500}}
    for told, says in ((facts, False), (screened, True)):
        made = charts(told, rows)
        assert [chart.name for chart in made] == names
        assert ("chose these 4 of 500 features" in made[4].caption) is says


def test_without_held_out_rows_and_curves_there_are_fewer_charts(facts: dict[str, Any]) -> None:
    bare = {
        **facts,
        "held_out": None,
        "doubt": None,
        "importance": None,
        "training": {**facts["training"], "curves": None},
    }
    assert charts(bare) == []


def test_pictures_take_all_colours_from_the_page(facts: dict[str, Any]) -> None:
    for drawing in draw(facts):
        element = drawing.element()
        assert element.startswith("<svg")
        assert "var(--ink)" in element
        assert not re.findall(r"#[0-9a-f]{6}\b", element)
        assert "http://" not in element.replace("http://www.w3.org/", "")


def test_without_the_extra_nothing_is_drawn(facts: dict[str, Any]) -> None:
    with mock.patch.object(page, "find_spec", return_value=None):
        assert draw(facts) == []


@pytest.mark.parametrize("name", ['<b>&"größe"</b>', "a.b[0]"])
def test_any_name_of_a_feature_can_be_drawn(facts: dict[str, Any], name: str) -> None:
    changed = json.loads(json.dumps(facts))
    changed["doubt"]["features"][0]["name"] = name
    by_category = changed["held_out"]["coverage_by_category"]
    changed["held_out"]["coverage_by_category"] = {name: by_category["district"]}
    for drawing in draw(changed):
        if drawing.chart.name in ("doubt", "coverage"):
            assert "<b>" not in drawing.element()
