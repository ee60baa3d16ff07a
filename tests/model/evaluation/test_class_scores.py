"""Metrics of class probabilities equal those of scikit-learn and MAPIE on the same predictions."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from mapie.metrics.calibration import expected_calibration_error
from mapie.metrics.classification import classification_coverage_score, classification_mean_width_score
from sklearn import metrics as sklearn_metrics

from murho.model.evaluation.class_scores import JudgedClasses, accuracy_of_kept, class_scores, row_log_loss, set_scores
from murho.model.evaluation.judged_rows import RowWeights
from murho.model.tables.schema import Schema, Target


class Predictions(NamedTuple):
    """Probabilities ``[N, C]``, labels and weights ``[N]``."""

    probabilities: np.ndarray
    labels: np.ndarray
    weights: np.ndarray | None


def _predictions(classes: int, weighted: bool, rows: int = 500) -> Predictions:
    generator = np.random.default_rng(classes)
    # Rounded, so that some probabilities are equal.
    logits = np.round(generator.normal(0.0, 1.5, (rows, classes)) - 0.5 * np.arange(classes), 1)
    right = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (right.cumsum(axis=1) < generator.uniform(size=(rows, 1))).sum(axis=1)
    stated = np.exp(1.7 * logits) / np.exp(1.7 * logits).sum(axis=1, keepdims=True)
    return Predictions(stated, labels, generator.uniform(0.0, 3.0, rows) if weighted else None)


def in_full(probabilities: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> dict[str, Any]:
    """All that is told of the rows, with sets of every class."""
    rows, classes = probabilities.shape
    every = np.ones(probabilities.shape, dtype=bool)
    judged = JudgedClasses(
        rows=np.arange(rows),
        targets=labels.astype(np.float64),
        doubt=np.zeros(rows),
        weights=RowWeights.of(rows, weights),
        probabilities={"raw": probabilities},
        sets={"raw": dict.fromkeys((80, 90, 95), every)},
    )
    return judged.in_full(Schema((), Target("y", None, tuple(map(str, range(classes)))), {}), {})


@pytest.fixture(
    scope="module",
    params=[(2, False), (2, True), (4, False), (4, True)],
    ids=["binary", "binary-weighted", "four", "four-weighted"],
)
def predictions(request: pytest.FixtureRequest) -> Predictions:
    classes, weighted = request.param
    return _predictions(classes, weighted)


def test_scores_equal_those_of_scikit_learn(predictions: Predictions) -> None:
    probabilities, labels, weights = predictions
    ours = class_scores(probabilities, labels, RowWeights.of(500, weights))
    predicted = probabilities.argmax(axis=1)
    binary = probabilities.shape[1] == 2
    theirs = {
        "accuracy": sklearn_metrics.accuracy_score(labels, predicted, sample_weight=weights),
        "balanced_accuracy": sklearn_metrics.balanced_accuracy_score(labels, predicted, sample_weight=weights),
        "log_loss": sklearn_metrics.log_loss(labels, probabilities, sample_weight=weights),
        "brier": sklearn_metrics.brier_score_loss(labels, probabilities, sample_weight=weights),
    }
    if binary or weights is None:
        scores = probabilities[:, 1] if binary else probabilities
        theirs["auc"] = sklearn_metrics.roc_auc_score(labels, scores, sample_weight=weights, multi_class="ovr")
    else:  # scikit-learn weighs no rows of more than two classes
        theirs["auc"] = np.mean(
            [
                sklearn_metrics.roc_auc_score(labels == number, probabilities[:, number], sample_weight=weights)
                for number in range(4)
            ]
        )
    assert ours["n"] == 500
    for name, value in theirs.items():
        assert ours[name] == pytest.approx(value, rel=1e-12), name


def test_confusion_recall_and_precision_equal_those_of_scikit_learn(predictions: Predictions) -> None:
    probabilities, labels, weights = predictions
    predicted, classes = probabilities.argmax(axis=1), probabilities.shape[1]
    theirs = sklearn_metrics.confusion_matrix(labels, predicted, sample_weight=weights)
    found = in_full(probabilities, labels, weights)
    np.testing.assert_allclose(found["confusion"], theirs)
    by_class = found["by_class"]
    precision, recall, _, _ = sklearn_metrics.precision_recall_fscore_support(labels, predicted, sample_weight=weights)
    for number in range(classes):
        of_class = by_class[str(number)]
        assert of_class["rows"] == np.sum(labels == number)
        assert of_class["accuracy"] == pytest.approx(recall[number])
        assert of_class["precision"] == pytest.approx(precision[number])


@pytest.mark.parametrize("classes", [2, 4])
def test_calibration_errors_equal_those_of_mapie(classes: int) -> None:
    probabilities, labels, _ = _predictions(classes, weighted=False)
    correct = (probabilities.argmax(axis=1) == labels).astype(int)
    # MAPIE counts the ends of bins.
    theirs = expected_calibration_error(correct, probabilities, num_bins=16)
    ours = class_scores(probabilities, labels)
    assert ours["ece"] == pytest.approx(theirs)
    theirs = expected_calibration_error(correct, probabilities, num_bins=16, classwise=True, class_labels=labels)
    assert ours["classwise_ece"] == pytest.approx(theirs)


def test_the_log_loss_of_a_class_of_probability_0_is_finite_as_in_scikit_learn() -> None:
    probabilities = np.array([[1.0, 0.0], [0.4, 0.6]])
    theirs = sklearn_metrics.log_loss([1, 1], probabilities, labels=[0, 1])
    assert row_log_loss(probabilities, np.array([1, 1])).mean() == pytest.approx(theirs)


def test_there_is_no_auc_of_a_single_class() -> None:
    assert class_scores(np.array([[0.2, 0.7, 0.1]]), np.array([1]))["auc"] is None


def test_accuracy_of_the_most_certain_rows() -> None:
    correct, uncertainty = np.arange(20) < 15, np.linspace(0.1, 0.9, 20)
    found = accuracy_of_kept(correct, uncertainty, RowWeights.of(20))
    assert found == pytest.approx({"50": 1.0, "80": 15 / 16, "90": 15 / 18, "95": 15 / 19, "100": 0.75})


LABELS = np.random.default_rng(4).integers(0, 4, 200)


def test_coverage_and_size_equal_those_of_mapie() -> None:
    generator = np.random.default_rng(3)
    sets = {coverage: generator.uniform(size=(200, 5)) < coverage / 100.0 for coverage in (80, 95)}
    ours = set_scores(sets, LABELS, RowWeights.of(200))
    stacked = np.stack(list(sets.values()), axis=2)
    assert list(ours["coverage"].values()) == pytest.approx(classification_coverage_score(LABELS, stacked).tolist())
    assert list(ours["size"].values()) == pytest.approx(classification_mean_width_score(stacked).tolist())
