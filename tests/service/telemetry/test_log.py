from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import structlog

from murho.service.telemetry.log import configure_logging

if TYPE_CHECKING:
    import pytest


def test_log_lines_are_json_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level, configuration = root.handlers[:], root.level, structlog.get_config()
    try:
        configure_logging("info", "json")
        structlog.get_logger("murho").info("ready", models=["cars"])
        logging.getLogger("somebody").warning("careful %s", "now")
        structlog.get_logger("murho").debug("not shown")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        structlog.configure(**configuration)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["ready", "careful now"]
    assert lines[0]["models"] == ["cars"]
