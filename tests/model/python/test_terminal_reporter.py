"""What a training shows: lines in a log, and a display on a terminal of 80 columns."""

import io
import math
import signal
from typing import Any

import pytest
from rich.console import Console

from murho.model.bbb.fit import Epoch
from murho.model.python.terminal_reporter import TerminalReporter
from murho.model.training.candidates import Attempt, Candidate, Stage

pytestmark = pytest.mark.fast

CANDIDATE = Candidate("heteroscedastic", "none", "standard", whitened=False, hidden=(64, 64), temperature=0.3)


def stage(number: int, done: float) -> Stage:
    return Stage(f"trial: {CANDIDATE}", number, 8, done, 0.1)


def use(reporter: TerminalReporter) -> None:
    """Return a fit, the next one with worse scores, and an epoch of it that follows its schedule twice as fast."""
    reporter.stage(stage(2, 0.0))
    reporter.show_scores(Attempt(CANDIDATE, "trial", 2.3, 1.5, 1.0))
    reporter.stage(stage(3, 0.5))
    reporter.show_scores(Attempt(CANDIDATE, "trial", 2.3, 2.5, 1.0))
    reporter.epoch(Epoch(5, 20, 1.25, 0.5, math.nan, 10.0, 0.5))


def test_a_line_of_a_log_has_the_fit_the_share_and_the_best_scores(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalReporter(seconds_between_lines=0.0) as reporter:
        use(reporter)
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("fit 3 of 8, 55 %, 0:00:00, ETA ")
    assert line.endswith("epoch 5/20, best so far: CRPS 1.5, NLL 2.300 nats (fit 2)")
    with TerminalReporter() as reporter:  # notes at once, and at most one line in ten seconds
        reporter.say("rows: 3")
        use(reporter)
    assert capsys.readouterr().err.splitlines() == ["rows: 3"]


def test_the_display_fits_80_columns_and_keeps_bar_time_and_scores() -> None:
    terminal, screen = (Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None) for _ in "ab")
    with TerminalReporter(console=terminal) as reporter:
        use(reporter)
        with screen.capture() as captured:
            screen.print(reporter)
    lines = captured.get().splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("fit 3 of 8: trial: heteroscedastic noise")
    assert "55 %" in lines[1]
    assert "ETA" in lines[1]
    assert lines[2] == "epoch 5/20  free energy 1.75 = nll 1.25 + KL 0.5  not validated yet"
    assert lines[3] == "best so far: CRPS 1.5, NLL 2.300 nats (fit 2)"


@pytest.mark.usefixtures("heed_interrupts")
def test_an_interrupted_line_is_whole_and_later_ones_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), width=80)
    reporter = TerminalReporter(console=console)
    rendered = console.render

    def interrupted(*arguments: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return rendered(*arguments, **options)

    monkeypatch.setattr(console, "render", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reporter.say("an epoch is done")
    monkeypatch.undo()
    reporter.say("interrupted")
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "an epoch is done\ninterrupted\n"
