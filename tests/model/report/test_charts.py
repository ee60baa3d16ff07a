"""The charts: which there are, that they are Vega-Lite that draws, and that pictures fit a light and a dark page."""

import json
import re
from typing import Any

import pytest

from murho.model.report.charts import charts
from murho.model.report.reports import draw_chart
from murho.model.training.train import Trained


def test_there_is_a_chart_for_each_decision(trained: Trained, facts: dict[str, Any]) -> None:
    names = ["predicted", "reliability", "coverage", "importance", "curves"]
    screened = facts | {"importance": facts["importance"] | {"of_features": 500}}
    for told, says in ((facts, False), (screened, True)):
        made = charts(trained.spec.schema.target, told)
        assert [chart.name for chart in made] == names
        assert ("chose these 4 of 500 features" in made[3].caption) is says


def test_parts_that_are_covered_too_rarely_stand_out(trained: Trained, facts: dict[str, Any]) -> None:
    changed = json.loads(json.dumps(facts))
    changed["held_out"]["coverage_by_std"][0]["calibrated"] = 0.1
    (chart,) = (chart for chart in charts(trained.spec.schema.target, changed) if chart.name == "coverage")
    plain = draw_chart(next(chart for chart in charts(trained.spec.schema.target, facts) if chart.name == "coverage"))
    assert draw_chart(chart).count("var(--orange)") == plain.count("var(--orange)") + 1


def test_pictures_take_all_colours_from_the_page(trained: Trained, facts: dict[str, Any]) -> None:
    for chart in charts(trained.spec.schema.target, facts):
        element = draw_chart(chart)
        assert element.startswith("<svg")
        assert "var(--ink)" in element
        assert not re.findall(r"#[0-9a-f]{6}\b", element)
        assert "http://" not in element.replace("http://www.w3.org/", "")


@pytest.mark.parametrize("name", ['<b>&"größe"</b>', "a.b[0]"])
def test_any_name_of_a_feature_can_be_drawn(trained: Trained, facts: dict[str, Any], name: str) -> None:
    changed = json.loads(json.dumps(facts))
    changed["importance"]["features"][0]["name"] = name
    by_category = changed["held_out"]["coverage_by_category"]
    changed["held_out"]["coverage_by_category"] = {name: by_category["district"]}
    for chart in charts(trained.spec.schema.target, changed):
        assert "<b>" not in draw_chart(chart)
