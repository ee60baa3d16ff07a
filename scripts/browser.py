"""Finds a Chromium for the tests of the page, and installs one where there is none.

    .venv/bin/python scripts/browser.py           prints the path of the browser; installs one if it must
    .venv/bin/python scripts/browser.py --find    only looks

A browser counts if it starts: some systems have a `chromium` that only says how to install one. TEST_BROWSER names
another browser. Debian's package is installed where this runs as root on a system with apt, and Playwright's own build
anywhere else; PLAYWRIGHT_DOWNLOAD_HOST names a mirror of it. Without any the tests of the page are skipped; with
TEST_BROWSER=required they fail.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = ("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",)
OF_PLAYWRIGHT = ("chromium-*/chrome-linux*/chrome", "chromium-*/chrome-mac*/*.app/Contents/MacOS/*")
SECONDS_TO_START, SECONDS_TO_INSTALL = 30, 600


def find_browser() -> str | None:
    """Return the path of a browser on this machine that starts; None if there is none. TEST_BROWSER is taken unseen."""
    named = os.environ.get("TEST_BROWSER", "")
    if named not in {"", "required"}:
        return named
    return next((path for path in _candidates() if _starts(path)), None)


def _candidates() -> Iterator[str]:
    yield from filter(None, map(shutil.which, NAMES))
    yield from (place for place in PLACES if Path(place).exists())
    for cache in _caches():
        for pattern in OF_PLAYWRIGHT:
            yield from map(str, sorted(cache.glob(pattern), key=_build, reverse=True))


def _caches() -> Iterator[Path]:
    """Where Playwright keeps browsers: as it is told, else as the system has it."""
    told = os.environ.get("PLAYWRIGHT_BROWSERS_PATH", "")
    if told == "0":  # within its own package
        package = find_spec("playwright")
        if package is not None and package.origin is not None:
            yield Path(package.origin).parent / "driver" / "package" / ".local-browsers"
    elif told:
        yield Path(told).expanduser()
    yield Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ms-playwright"
    yield Path("~/Library/Caches/ms-playwright").expanduser()


def _build(path: Path) -> int:
    found = re.search(r"chromium-(\d+)", str(path))
    return int(found[1]) if found else 0


def _starts(path: str) -> bool:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, timeout=SECONDS_TO_START, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def install_browser() -> None:
    """Install a browser; whether it worked, `find_browser` tells."""
    if shutil.which("apt-get") and os.geteuid() == 0:
        _run("apt-get", "update", "-q")
        _run("apt-get", "install", "-qy", "--no-install-recommends", "chromium")
        if find_browser():
            return
    _run(sys.executable, "-m", "playwright", "install", "--no-shell", "chromium")


def _run(*command: str) -> None:
    """Run a command and show what it says; one that fails or hangs is said, and is no end."""
    try:
        done = subprocess.run(command, check=False, stdout=sys.stderr, timeout=SECONDS_TO_INSTALL)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"{error}\n")
    else:
        if done.returncode:
            sys.stderr.write(f"{' '.join(command)} failed with code {done.returncode}\n")


def main() -> int:
    """Print the browser's path; returns 1 if there is none."""
    named = os.environ.get("TEST_BROWSER", "")
    if named not in {"", "required"} and not _starts(named):
        sys.stderr.write(f"TEST_BROWSER={named} does not start: it must be the path of a Chromium.\n")
        return 1
    browser = find_browser()
    if browser is None and "--find" not in sys.argv[1:]:
        sys.stderr.write("There is no Chromium on this machine, which tests of the page need: installing one ...\n")
        install_browser()
        browser = find_browser()
        if browser is None and any(True for _ in _candidates()):
            sys.stderr.write(
                "A Chromium is there, but it does not start. If libraries are missing, root installs them by "
                f"{sys.executable} -m playwright install-deps chromium\n"
            )
    if browser is None:
        sys.stderr.write("No Chromium: the tests of the page are skipped. Install chromium, or set TEST_BROWSER.\n")
        return 1
    sys.stdout.write(f"{browser}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
