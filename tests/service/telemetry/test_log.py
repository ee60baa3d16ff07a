from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
import structlog

from murho.service.http.middleware import AccessLog
from murho.service.telemetry.log import WAITING_TEXTS, LogLimit, Stderr, configure_logging, escape_texts

# A terminal's title, its colours by one byte, a text that runs backwards, a forged line, half a character.
HOSTILE = "a\x1b]0;pwn\x07b\x9b31mc\u202ed\ne\x7ff\u2028g\udcff\rh\u2066"
SHOWN = r"a\x1b]0;pwn\x07b\x9b31mc\u202ed\ne\x7ff\u2028g\udcff\rh\u2066"


@contextmanager
def configured(style: Literal["console", "json"]) -> Iterator[None]:
    root = logging.getLogger()
    before, level, configuration = root.handlers[:], root.level, structlog.get_config()
    try:
        configure_logging("info", style)
        yield
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        structlog.configure(**configuration)


def test_log_lines_are_json_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    with configured("json"):
        structlog.get_logger("murho").info("ready", models=["cars"])
        logging.getLogger("somebody").warning("careful %s", "now")
        structlog.get_logger("murho").debug("not shown")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["ready", "careful now"]
    assert lines[0]["models"] == ["cars"]


class HostileError(Exception):
    def __str__(self) -> str:
        return HOSTILE


def complain() -> None:
    raise HostileError


def say_everything() -> None:
    log: Any = structlog.get_logger("murho")
    log.info(HOSTILE, path=HOSTILE, listed=[HOSTILE], nested={HOSTILE: (HOSTILE,)}, error=HostileError())
    logging.getLogger("uvicorn.error").warning("%s", HOSTILE)
    try:
        complain()
    except HostileError:
        log.exception("failed")
        logging.getLogger("uvicorn.error").exception("failed")


@pytest.mark.parametrize("style", ["console", "json"])
def test_nothing_in_a_line_commands_the_terminal(
    capsys: pytest.CaptureFixture[str], style: Literal["console", "json"]
) -> None:
    with configured(style):
        say_everything()

        async def ask() -> None:
            access = AccessLog("info", style)
            access.write({"path": HOSTILE, "client": HOSTILE})
            access.flush()

        asyncio.run(ask())
    text = capsys.readouterr().err
    lines = text.splitlines()
    assert [mark for mark in text if not mark.isprintable() and mark != "\n"] == []
    # A line break in a traceback stays one, in any other value none is left; JSON has a line for each event.
    events = [line for line in lines if "[info" in line or "[warning" in line or "[error" in line or line[:1] == "{"]
    assert len(events) == 5
    if style == "json":
        parsed = [json.loads(line) for line in lines]
        assert (parsed[0]["event"], parsed[0]["path"], parsed[1]["event"]) == (SHOWN, SHOWN, SHOWN)
        assert parsed[0]["error"] == SHOWN
        assert SHOWN.replace(r"\n", "\n") in parsed[2]["exception"]
        assert parsed[4]["path"] == SHOWN
    else:
        assert all(SHOWN in line or SHOWN.replace("\\", "\\\\") in line for line in (lines[0], lines[1], lines[-1]))


def test_what_is_printable_stays_as_it_is() -> None:
    said = {"path": "/models/Zürich 東京 🚗", "status": 200, "ms": 0.5, "name": None}
    assert escape_texts(said) == said


def test_lines_above_the_limit_are_held_back_and_counted() -> None:
    now = [0.0]
    limit = LogLimit(2, 10.0, clock=lambda: now[0])
    assert [limit.hold_back() for _ in range(5)] == [0, 0, None, None, None]
    now[0] = 9.9
    assert limit.hold_back() is None
    now[0] = 10.0
    assert [limit.hold_back() for _ in range(3)] == [4, 0, None]


def test_a_reader_that_stalls_loses_lines_which_are_counted_and_nothing_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stalled, os.fdopen(reader, "rb", buffering=0) as unread:
        monkeypatch.setattr("sys.stderr", stalled)
        with configured("json"), Stderr.in_thread():
            for number in range(2 * WAITING_TEXTS):
                Stderr().write(f"{number:099}\n")
            read, kept, dropped = b"", list[int](), 0
            while len(kept) + dropped < 2 * WAITING_TEXTS:  # the thread writes on as soon as somebody reads
                read += unread.read(2**16)
                lines = read.decode().split("\n")[:-1]
                kept = [int(line) for line in lines if line.isdigit()]
                dropped = sum(json.loads(line)["lines"] for line in lines if not line.isdigit())
    assert len(kept) + dropped == 2 * WAITING_TEXTS
    assert kept[:WAITING_TEXTS] == list(range(WAITING_TEXTS))
    assert kept == sorted(set(kept))
    assert dropped > 0
