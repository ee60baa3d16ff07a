"""Plain lines where there is no terminal."""

import time

import pytest

from murho.model.progress import advancing


def test_long_work_gets_a_line_every_two_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with advancing("scoring", 4000) as advance:
        for _ in range(4):
            now += 1.5
            advance(1000)
    assert capsys.readouterr().err.splitlines() == [
        "scoring: 2,000 of 4,000 rows, 3 s, about 3 s more",
        "scoring: 4,000 of 4,000 rows, 6 s, about 0 s more",
    ]


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with advancing("scoring", 10) as advance:
        advance(10)
    assert capsys.readouterr().err == ""


def test_a_terminal_sees_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with advancing("scoring", 4000) as advance:
        advance(4000)
    assert "4,000 of 4,000 rows" in capsys.readouterr().err
