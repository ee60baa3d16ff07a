"""What `murho train` prints of a classifier."""

from typing import Any

import pytest

from murho.model.evaluation.summary import plus_minus, significant, summary, verdict

SETS = {"coverage": {"90": 0.912}, "size": {"90": 1.234}}
SCORES: dict[str, Any] = {
    "accuracy": 0.8123,
    "log_loss": 0.4567,
    "auc": 0.9012,
    "ece": 0.0123,
    "standard_errors": {"accuracy": 0.0123, "log_loss": 0.0234, "brier": 0.01},
    "raw": {"ece": 0.05, "log_loss": 0.51},
    "calibrated": {"ece": 0.0123},
    "sets": SETS,
    "constant": {"log_loss": 0.6667, "accuracy": 0.7},
    "members": 2,
    "all_members": 10,
}


def test_a_calibrated_classifier_is_a_verdict_four_short_lines_and_a_note() -> None:
    assert summary(SCORES, None) == [
        "verdict: predicts in part: log loss 0.457 nats, 31.5 % lower than ignoring the features (0.667)",
        "log loss 0.457 ± 0.023 nats   accuracy 81.2 ± 1.2 % (70.0 % are of one class)   AUC 0.901",
        "calibration error 1.2 % (raw 5.0 %, raw log loss 0.51)",
        "90 % sets hold the class of 91.2 % of the rows; 1.23 classes on average",
        "(scores of the 2 members that have not seen the row; all 10 together do better)",
        "(close to 90 % by design: test on unseen rows with murho evaluate)",
    ]


def test_without_a_calibration_the_probabilities_are_raw() -> None:
    scores = {key: value for key, value in SCORES.items() if key != "sets"}
    lines = summary(scores | {"calibrated": None, "auc": None}, None)
    assert "AUC" not in lines[1]
    assert lines[2] == "probabilities are raw: too few rows to calibrate them"


@pytest.mark.parametrize(
    ("crps", "said"),
    [
        (0.2, "predicts well: CRPS 0.2 mpg, 80.0 % lower than ignoring the features (1)"),
        (0.85, "predicts little: CRPS 0.85 mpg, 15.0 % lower than ignoring the features (1)"),
        (0.95, "not surely better than ignoring the features: CRPS 0.95 mpg, ignoring the features 1"),
        (1.1, "does not predict: CRPS 1.1 mpg, ignoring the features 1"),
    ],
)
def test_the_verdict_compares_with_one_answer_for_all_rows(crps: float, said: str) -> None:
    scores = {"n": 73, "crps": crps, "constant": {"crps": 1.0}, "standard_errors": {"crps": 0.03}}
    assert verdict(scores, "mpg") == said
    assert verdict(scores | {"held_out": False}, "mpg").startswith("not known: judged on its own 73 training rows")
    beaten = scores | {"rmse": 3.611, "trees": {"rmse": 2.4723}}
    assert verdict(beaten, "mpg") == f"{said}; boosted trees predict better: RMSE 2.47 against 3.61"


def test_numbers_have_as_many_digits_as_their_error_tells() -> None:
    assert plus_minus(57_743_382.1, 28_863_163.0) == "58,000,000 ± 29,000,000"
    assert (plus_minus(2.6912, 0.1134), plus_minus(1234.5678, None)) == ("2.69 ± 0.11", "1,235")
    assert [significant(value, 3) for value in (3_836_063.0, 999.9, 0.01234)] == ["3,840,000", "1,000", "0.0123"]
