"""Plain lines where there is no terminal (a terminal is tested in tests/e2e/test_commands.py)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from murho.model.commands.training_progress import TerminalReporter
from murho.model.fitting.fit_types import Epoch

if TYPE_CHECKING:
    import pytest


def test_a_log_gets_a_first_and_a_last_line_with_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = TerminalReporter(seconds_between_lines=1e9)
    reporter.say("rows: 3")
    reporter.begin("fixed noise")
    for number in (1, 2, 3):
        reporter.epoch(Epoch(number, 10, negative_log_likelihood=1.25, kl=0.5, validation=1.1, seconds=2.0 * number))
    reporter.end()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "rows: 3",
        "fixed noise: epoch 3/10, free energy 1.750 = nll 1.250 + KL 0.500, validation nll 1.100, "
        "6 s, at most 14 s more",
    ]


def test_before_the_first_validation_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = TerminalReporter()
    reporter.begin("fixed noise")
    reporter.epoch(Epoch(1, 10, negative_log_likelihood=1.25, kl=0.5, validation=math.nan, seconds=1.0))
    reporter.end()
    said = capsys.readouterr().err
    assert "not validated yet" in said
    assert "nan" not in said
