"""Takes the picture of the page that docs/page.md shows, from a running service.

    .venv/bin/python scripts/page_screenshot.py http://127.0.0.1:8000 docs/page.png [STATE]

STATE is the part of a link to the page behind #. The browser is the one that scripts/browser.py finds.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

BROWSER = Path(__file__).with_name("browser.py")
SIZE = (1180, 980)


def main(address: str, picture: str, state: str = "") -> None:
    """Open the page, wait for its charts, and save what is seen."""
    browser = runpy.run_path(str(BROWSER))["find_browser"]()
    with sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport={"width": SIZE[0], "height": SIZE[1]})
        page.goto(f"{address.rstrip('/')}/#{state}")
        page.wait_for_function("() => document.body.dataset.state === 'answered'")
        page.wait_for_selector("#sweep svg")
        page.wait_for_timeout(500)
        page.screenshot(path=picture, full_page=True)
        chromium.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
