"""A browser for the tests of the page, and what each of its pages must not do."""

from __future__ import annotations

import gzip
import json
import os
import re
import runpy
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from murho.model.tables.schema import Feature, FeatureKind, Schema, Target
from tests.service.classifiers import class_spec, write_classifier
from tests.service.support import spec_of
from tests.support import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

AXE = Path(__file__).parent / "axe" / "axe.min.js.gz"
"""axe-core 4.14.1: an unchanged build of the npm package, compressed with gzip -9n (MPL 2.0; licence beside it)."""
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP = (1280, 800)
PHONE = (390, 844)


@contextmanager
def started_browser() -> Iterator[Browser]:
    """Start the browser that `scripts/browser.py` finds; skip the test if there is none, unless one is required."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
    found = runpy.run_path(str(ROOT / "scripts" / "browser.py"))["find_browser"]()
    if found is None:
        message = "no Chromium on this machine: .venv/bin/python scripts/browser.py installs one"
        if os.environ.get("TEST_BROWSER") == "required":
            pytest.fail(message)
        pytest.skip(message)
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """A page that is open, and what it said and asked for.

    Attributes:
        page: Playwright's page.
        address: The service's URL, with a slash at the end.
        said: Messages of the console that are errors or warnings, and exceptions.
        hosts: The hosts of all its requests.
    """

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address.rstrip("/") + "/"
        self.said: list[str] = []
        self.hosts: set[str] = set()
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.hosts.add(re.sub(r"^(blob:|data:).*", "", request.url)[:200]))

    def _heard(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.said.append(text)

    def forget(self) -> None:
        """Forget what was said and asked for, and what a test has put between the page and the service."""
        self.page.unroute_all()
        self.page.goto("about:blank")
        self.said.clear()
        self.hosts.clear()

    def go(self, state: str = "", shown: str = "#density svg") -> Visit:
        """Open the page in a state of its address, and wait for the answer and an element of it."""
        self.page.goto("about:blank")
        self.page.goto(self.address + state)
        self.wait(shown)
        self.answered()
        return self

    def answered(self) -> None:
        """Wait until the answer belongs to the form."""
        self.page.wait_for_function("() => document.body.dataset.state === 'answered'")

    def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        return self.page.inner_text(selector)

    def texts(self, selector: str) -> list[str]:
        """Return the visible texts of all elements that are found."""
        texts: list[str] = self.page.locator(selector).all_inner_texts()
        return texts

    def wait(self, selector: str, **how: Any) -> None:
        """Wait for an element."""
        self.page.wait_for_selector(selector, **how)

    def tab(self, name: str) -> None:
        """Open a tab."""
        self.page.click(f"#tab-{name}")

    def choose(self, selector: str, value: str) -> None:
        """Chooses from a list."""
        self.page.select_option(selector, value)

    def fill(self, feature: str, value: str, form: str = "#form") -> None:
        """Write a number into the field of a feature."""
        self.field(feature, form).locator("input[type=number]").fill(value)

    def field(self, feature: str, form: str = "#form") -> Any:
        """Return the field of a feature."""
        return self.page.locator(f'{form} .field[data-feature="{feature}"]')

    def check(self, *, expected: tuple[str, ...] = ()) -> None:
        """Check that the page said nothing and asked nobody but the service.

        Args:
            expected: Parts of console messages that belong to the test: a browser reports answers such as 422.
        """
        assert [text for text in self.said if not any(part in text for part in expected)] == [], self.said
        assert all(url == "" or url.startswith((self.address, "about:")) for url in self.hosts), self.hosts

    def accessibility(self, part: str = "body") -> list[str]:
        """Return what axe finds in a part of the page, a line each."""
        if not self.page.evaluate("() => Boolean(globalThis.axe)"):
            self.page.evaluate(gzip.decompress(AXE.read_bytes()).decode())
        found = self.page.evaluate("(part) => axe.run(part, {resultTypes: ['violations']})", part)
        return [
            f"{item['id']}: {node['html'][:160]} {node['failureSummary'][:300]}"
            for item in found["violations"]
            for node in item["nodes"]
        ]


@contextmanager
def visiting(
    browser: Browser, address: str, size: tuple[int, int] = DESKTOP, *, dark: bool = False, **choices: Any
) -> Iterator[Visit]:
    """Open a window of its own, with storage of its own."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light", **choices
    )
    context.set_default_timeout(15_000)
    try:
        yield Visit(context.new_page(), address)
    finally:
        context.close()


TABS = ("sweep", "compare", "map", "why", "file", "totals", "request", "card")


def answer_of(site: str, model: str, inputs: list[dict[str, Any]], **options: Any) -> dict[str, Any]:
    """Return what the service answers for rows, without the page."""
    response = httpx.post(f"{site}/models/{model}/predict", json={"inputs": inputs, **options})
    response.raise_for_status()
    answer: dict[str, Any] = response.json()
    return answer


def typical_row(site: str, model: str) -> dict[str, Any]:
    """Return the row that the page starts with."""
    row: dict[str, Any] = httpx.get(f"{site}/models/{model}/overview").json()["typical"]
    return row


LONG = "annual_consumption_of_electrical_energy_per_customer_kwh"
LAST = "sensor_59_temperature_of_the_heat_exchanger_in_building_3"


def write_wide(root: Path) -> None:
    """Write checkpoints of sixty features with long names, most important the last: of numbers and of classes."""
    names = [f"x{i:02d}" if i % 3 else f"sensor_{i:02d}_temperature_of_the_heat_exchanger" for i in range(58)]
    features = [Feature(name, FeatureKind.NUMERIC, "°C", True, 0.0, 1.0, ()) for name in [*names, LAST]]
    levels = ("10 to 11", "9 to 10", "central-european-district-with-a-very-long-name")
    features.append(
        Feature("district (as registered)", FeatureKind.CATEGORICAL, None, True, None, None, tuple(sorted(levels)))
    )
    schema = Schema(tuple(features), Target(LONG, "kWh"), {})
    written = write_classifier(root, "wide", spec_of(schema))
    write_classifier(root, "risks", class_spec(replace(schema, target=Target("risk", None, ("high", "low", "medium")))))
    ranked = [{"name": LAST, "rmse": {"value": 2.0}}, {"name": "x02", "rmse": {"value": 1.0}}]
    facts = {"format": 4, "importance": {"measures": ["rmse"], "features": ranked}}
    (written / "report").mkdir()
    (written / "report" / "facts.json").write_text(json.dumps(facts))
