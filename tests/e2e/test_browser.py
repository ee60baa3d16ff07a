"""`scripts/browser.py`, which finds or installs the browser of these tests, on machines that have none."""

from __future__ import annotations

import io
import os
import platform
import runpy
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCRIPT = ROOT / "scripts" / "browser.py"
STARTS, STARTS_NOT = "#!/bin/sh\necho Chromium 1.0\n", "#!/bin/sh\necho 'This needs the snap.'\nexit 1\n"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a folder of programs, both empty."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in ("TEST_BROWSER", "PLAYWRIGHT_BROWSERS_PATH", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def mirror() -> Iterator[tuple[str, list[str]]]:
    """A mirror of Playwright's builds, which are scripts here: its address, and the paths that it was asked for."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as files:
        for name in ("chrome-linux64/chrome", "chrome-linux/chrome", "ffmpeg-linux"):
            entry = zipfile.ZipInfo(name)
            entry.create_system, entry.external_attr = 3, 0o100755 << 16
            files.writestr(entry, STARTS)
    asked: list[str] = []

    class Mirror(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("content-length", str(len(packed.getvalue())))
            self.end_headers()
            self.wfile.write(packed.getvalue())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.mark.skipif((sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the mirror has Linux builds")
def test_playwrights_build_is_installed_into_a_new_home_and_found(machine: Path, mirror: tuple[str, list[str]]) -> None:
    pytest.importorskip("playwright")
    address, asked = mirror
    environment = {**os.environ, "PLAYWRIGHT_DOWNLOAD_HOST": address}

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SCRIPT), *options]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert run("--find").returncode == 1
    done = run()
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(machine / "home/.cache/ms-playwright" / "chromium-"))
    assert any("chrome-linux" in path for path in asked)


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


def test_a_named_browser_that_does_not_start_is_said(
    machine: Path, script: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEST_BROWSER", str(machine / "nowhere"))
    main: Callable[[], int] = script["main"]
    assert main() == 1
    assert f"TEST_BROWSER={machine / 'nowhere'} does not start" in capsys.readouterr().err
