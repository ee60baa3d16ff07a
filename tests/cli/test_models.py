"""`murho models`: a line for each checkpoint, or JSON."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from murho.cli.models import model_lines
from murho.model.checkpoint.summaries import CheckpointSummary
from tests.support import call_murho

NOW = datetime(2030, 5, 5, tzinfo=UTC)


def test_the_table_is_aligned_and_a_problem_stands_below() -> None:
    ago = timedelta
    lines = model_lines(
        [
            CheckpointSummary("cars", ("1", "2"), "mpg", "mi", 398, 1.3649, NOW - ago(days=3), task="regression"),
            CheckpointSummary(
                "rent", tuple("12345"), "price", None, 12_000, 75.0, NOW - ago(hours=1), task="regression"
            ),
            CheckpointSummary(
                "iris",
                ("1",),
                "species",
                rows=150,
                created=NOW,
                task="classification",
                log_loss=0.12345,
                accuracy=0.9567,
            ),
            CheckpointSummary("bad", (), problem="the directory holds no version"),
        ],
        NOW,
    )
    assert lines == [
        "NAME     VERSIONS   TASK             TARGET      ROWS                  HELD-OUT SCORE        AGE",
        "cars         1, 2   regression       mpg          398                   CRPS 1.365 mi     3 days",
        "rent   1 to 5 (5)   regression       price     12,000                         CRPS 75     1 hour",
        "iris            1   classification   species      150   log loss 0.1235, 95.7 % right   just now",
        "bad: the directory holds no version",
    ]


def test_an_empty_directory_says_what_to_do(tmp_path: Path) -> None:
    assert "murho train" in call_murho("models", "--checkpoints", tmp_path).stdout


def test_models_lists_a_classifier(room_checkpoints: Path) -> None:
    (line,) = call_murho("models", "--checkpoints", room_checkpoints).stdout.splitlines()[1:]
    assert "classification" in line
    assert "log loss" in line
    (facts,) = json.loads(call_murho("models", "--checkpoints", room_checkpoints, "--json").stdout)["models"]
    assert facts["task"] == "classification"
    assert 0.0 < facts["log_loss"] < 1.2
    assert facts["accuracy"] > 0.5
    assert facts["crps"] is None
