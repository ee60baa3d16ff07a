"""`scripts/browser.py`, which finds or installs the browser of these tests, on machines that have none."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.support import ROOT

SCRIPT = ROOT / "scripts" / "browser.py"
STARTS, STARTS_NOT = "#!/bin/sh\necho Chromium 1.0\n", "#!/bin/sh\necho 'This needs the snap.'\nexit 1\n"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home and a folder of programs, both empty."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("TEST_BROWSER", "PLAYWRIGHT_BROWSERS_PATH", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_what_does_not_start_is_passed_over_and_of_playwrights_builds_the_newest_is_taken(
    machine: Path, script: dict[str, Any]
) -> None:
    program(machine / "bin" / "chromium-browser", STARTS_NOT)
    assert script["find_browser"]() is None
    cache = machine / "home" / ".cache" / "ms-playwright"
    for build in (999, 1255, 1100):
        program(cache / f"chromium-{build}" / "chrome-linux" / "chrome", STARTS)
    assert script["find_browser"]() == str(cache / "chromium-1255" / "chrome-linux" / "chrome")
    chrome = program(machine / "bin" / "google-chrome", STARTS)
    assert script["find_browser"]() == str(chrome)
