"""The page at `/` for tables with many features and long names, on screens of three sizes, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.browser import DESKTOP, LAST, LONG, PHONE, TABS, visiting

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ANSWERED = [("#m=wide", "#density svg", LONG), ("#m=risks", "#class-bars li", "risk")]


@pytest.mark.parametrize(("state", "shown", "title"), ANSWERED)
@pytest.mark.parametrize(("size", "dark"), [(DESKTOP, True), (PHONE, False)])
def test_sixty_features_fit_the_screen_and_the_answer_stays_in_sight(
    browser: Browser, site: str, size: tuple[int, int], dark: bool, state: str, shown: str, title: str
) -> None:
    with visiting(browser, site, size, dark=dark, has_touch=size is PHONE) as visit:
        visit.go(state, shown)
        assert visit.page.locator("#tabs").evaluate("it => it.scrollWidth <= it.clientWidth"), "no tab is out of sight"
        for tab in TABS:
            visit.tab(tab)
            visit.answered()
            assert visit.page.evaluate("() => document.documentElement.scrollWidth") <= size[0], tab
        assert visit.page.locator("#split-text").evaluate("it => it.scrollWidth <= it.clientWidth")
        assert visit.accessibility("#inputs") == []
        visit.page.locator("#form .field:not(.beyond)").last.scroll_into_view_if_needed()
        seen = "#headline strong" if size is DESKTOP else "#bar b"
        box = visit.page.locator(seen).bounding_box()
        assert box is not None
        assert 0 <= box["y"] <= size[1] - box["height"]
        assert visit.text("#bar").startswith(title)
        visit.check()


def test_features_are_listed_by_importance_and_found_by_a_search(browser: Browser, site: str) -> None:
    with visiting(browser, site) as visit:
        visit.go("#m=wide")
        fields = visit.page.locator("#form .field:visible")
        names = [fields.nth(i).get_attribute("data-feature") for i in range(3)]
        assert (names, fields.count()) == ([LAST, "x02", "sensor_00_temperature_of_the_heat_exchanger"], 12)
        visit.page.fill("#form .search", "x5")
        assert [fields.nth(i).get_attribute("data-feature") for i in range(fields.count())] == [
            f"x{i}" for i in (50, 52, 53, 55, 56)
        ]
        visit.fill("x52", "0.25")
        visit.answered()
        assert visit.page.input_value("#sweep-feature") == "x52"
        visit.page.fill("#form .search", "district")
        assert visit.texts("#form select:visible option")[:2] == ["9 to 10", "10 to 11"]
        visit.page.fill("#form .search", "")
        visit.page.click("#form > button")
        assert fields.count() == 60
        visit.page.click("#typical")
        visit.answered()
        assert visit.field("x52").locator("input[type=number]").input_value() == "0.5"
