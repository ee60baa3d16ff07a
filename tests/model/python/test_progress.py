"""What a training shows: lines in a log, and a display on a terminal of 80 columns."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from murho.model.bbb.fit import Epoch
from murho.model.python.progress import TerminalReporter
from murho.model.training.candidates import Attempt, Candidate, Stage

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.fast

CANDIDATE = Candidate("heteroscedastic", "none", "standard", whitened=False, hidden=(64, 64), temperature=0.3)


def epoch(number: int, *, validation: float = 1.1, progress: float = 0.0) -> Epoch:
    return Epoch(number, 10, 1.25, 0.5, validation, 2.0 * number, progress)


def attempt(crps: float) -> Attempt:
    return Attempt(CANDIDATE, "trial", 2.3, crps, 1.0)


def stage(number: int, done: float = 0.0) -> Stage:
    return Stage(f"trial: {CANDIDATE}", number, 8, done, 0.1)


def display(use: Callable[[TerminalReporter], object], width: int = 80) -> list[str]:
    """The lines of the display, as a terminal shows them."""
    terminal, screen = (Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None) for _ in "ab")
    with TerminalReporter(console=terminal) as reporter:
        use(reporter)
        with screen.capture() as captured:
            screen.print(reporter)
    return captured.get().splitlines()


def test_a_log_gets_notes_at_once_and_no_line_within_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalReporter() as reporter:
        reporter.say("rows: 3")
        reporter.stage(stage(1))
        for number in (1, 2, 3):
            reporter.epoch(epoch(number))
        reporter.scored(attempt(1.5))
    assert capsys.readouterr().err.splitlines() == ["rows: 3"]


def test_a_line_of_a_log_has_the_fit_the_share_and_the_best_scores(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalReporter(seconds_between_lines=0.0) as reporter:
        reporter.stage(stage(1))
        reporter.scored(attempt(1.5))
        reporter.stage(stage(2, done=0.1))
        reporter.epoch(epoch(5))
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("fit 2 of 8, 15 %, 0:00:00, ETA ")
    assert line.endswith("epoch 5/10, best so far: CRPS 1.5, NLL 2.300 nats (fit 1)")


def test_the_display_fits_80_columns_and_keeps_bar_time_and_scores() -> None:
    def use(reporter: TerminalReporter) -> None:
        reporter.stage(stage(3, done=0.5))
        reporter.scored(attempt(1.5))
        reporter.epoch(epoch(5))

    lines = display(use)
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("fit 3 of 8: trial: heteroscedastic noise")
    assert "55 %" in lines[1]
    assert "ETA" in lines[1]
    assert lines[2] == "epoch 5/10  free energy 1.75 = nll 1.25 + KL 0.5  validation nll 1.1"
    assert lines[3] == "best so far: CRPS 1.5, NLL 2.300 nats (fit 3)"


def test_the_best_scores_stay_when_a_later_fit_is_worse() -> None:
    def use(reporter: TerminalReporter) -> None:
        for number, crps in ((1, 1.5), (2, 2.5)):
            reporter.stage(stage(number))
            reporter.scored(attempt(crps))

    assert display(use)[-1].endswith("(fit 1)")


def test_a_fit_that_follows_its_schedule_faster_moves_the_bar_faster() -> None:
    shown = display(lambda reporter: reporter.epoch(epoch(1, progress=0.5)))
    assert "50 %" in shown[1]


def test_before_the_first_validation_it_says_so() -> None:
    text = "\n".join(display(lambda reporter: reporter.epoch(epoch(1, validation=math.nan))))
    assert "not validated yet" in text
    assert "nan" not in text
