"""What the tests of the page share, whatever the kind of target: the service's answers, and a walk over all tabs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx

from tests.e2e.browser import PHONE

if TYPE_CHECKING:
    from tests.e2e.browser import Visit

TABS = ("sweep", "compare", "map", "file", "request", "card")


def answer_of(site: str, model: str, inputs: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """What the service answers for rows, without the page."""
    response = httpx.post(f"{site}/models/{model}/predict", json={"inputs": inputs, **options})
    response.raise_for_status()
    answer: dict[str, Any] = response.json()
    return answer


def typical_row(site: str, model: str) -> dict[str, Any]:
    """The row that the page starts with."""
    row: dict[str, Any] = httpx.get(f"{site}/models/{model}/overview").json()["typical"]
    return row


def check_accessibility_of_tabs(visit: Visit) -> None:
    """Opens every tab: axe finds nothing on the page with the first one, nor on the panels of the others."""
    for tab in TABS:
        visit.page.click(f"#tab-{tab}")
        visit.answered()
        assert visit.accessibility("body" if tab == TABS[0] else f"#panel-{tab}") == [], tab
    visit.check()


def check_width_on_phone(visit: Visit, title: str) -> None:
    """Opens every tab in a window as wide as a phone: nothing is cut, and the bar begins with a title."""
    for tab in TABS:
        visit.page.click(f"#tab-{tab}")
        visit.answered()
        assert visit.page.evaluate("() => document.documentElement.scrollWidth") <= PHONE[0], tab
    assert visit.text("#bar").startswith(title)
    assert visit.accessibility() == []
    visit.check()
