"""Finds a Chromium for the tests of the page, and installs one where there is none.

    .venv/bin/python scripts/browser.py           prints the path of the browser; installs one if it must
    .venv/bin/python scripts/browser.py --find    only looks

TEST_BROWSER names another browser. Debian's package is taken where this runs as root on a system with apt, and
Playwright's own build anywhere else. Without any the tests of the page are skipped; with TEST_BROWSER=required they
fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["find_browser"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = ("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",)
CACHES = ("~/.cache/ms-playwright", "~/Library/Caches/ms-playwright")
OF_PLAYWRIGHT = ("chromium-*/chrome-linux*/chrome", "chromium-*/chrome-mac*/*.app/Contents/MacOS/*")


def find_browser() -> str | None:
    """The path of a browser on this machine; None if there is none."""
    named = os.environ.get("TEST_BROWSER", "")
    if named not in {"", "required"}:
        return named
    for name in NAMES:
        if found := shutil.which(name):
            return found
    for place in PLACES:
        if Path(place).exists():
            return place
    caches = [os.environ.get("PLAYWRIGHT_BROWSERS_PATH", ""), *CACHES]
    for cache in (Path(name).expanduser() for name in caches if name):
        for pattern in OF_PLAYWRIGHT:
            for executable in sorted(cache.glob(pattern), reverse=True):
                return str(executable)
    return None


def install_browser() -> None:
    """Install a browser; whether it worked, `find_browser` tells."""
    if shutil.which("apt-get") and os.geteuid() == 0:
        for command in (
            ["apt-get", "update", "-q"],
            ["apt-get", "install", "-qy", "--no-install-recommends", "chromium"],
        ):
            subprocess.run(command, check=False, stdout=sys.stderr, timeout=600)  # noqa: S603 - apt
        if find_browser():
            return
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    subprocess.run(command, check=False, stdout=sys.stderr, timeout=600)  # noqa: S603 - Playwright


def main() -> int:
    """Print the browser's path; returns 1 if there is none."""
    if find_browser() is None and "--find" not in sys.argv[1:]:
        sys.stderr.write("There is no Chromium on this machine, which tests of the page need: installing one ...\n")
        install_browser()
    browser = find_browser()
    if browser is None:
        sys.stderr.write("No Chromium: the tests of the page are skipped. Install chromium, or set TEST_BROWSER.\n")
        return 1
    sys.stdout.write(f"{browser}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
