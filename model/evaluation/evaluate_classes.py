"""Evaluation of a classifier on labelled rows, for `murho evaluate`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.data.arrow_values import rows_of
from murho.model.data.class_targets import class_codes, labels_from_table
from murho.model.data.columns import is_missing
from murho.model.data.row_weights import row_weights
from murho.model.data.schema_inference import columns_from_table
from murho.model.engines.prediction import DEFAULT_SAMPLES
from murho.model.errors import TableError
from murho.model.evaluation.class_confusion import confusion_matrix, scores_by_class
from murho.model.evaluation.class_metrics import class_scores, row_log_loss
from murho.model.evaluation.class_sets import SET_COVERAGES, set_scores, set_scores_by_class
from murho.model.evaluation.class_subgroups import scores_by_category, scores_by_confidence
from murho.model.evaluation.judged_classes import judge_classes
from murho.model.evaluation.selective_accuracy import accuracy_of_kept
from murho.model.runtime.row_progress import ignore_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.data.schema import Columns
    from murho.model.evaluation.judged_classes import JudgedClasses
    from murho.model.posterior.posterior import Posterior
    from murho.model.runtime.row_progress import Advance

__all__ = ["evaluate_class_table", "evaluate_classes"]

MOST_CLASSES_OF_A_MATRIX = 100
"""With more classes there is no confusion matrix, only the most frequent confusions."""
MOST_CONFUSIONS = 20


def evaluate_class_table(
    posterior: Posterior,
    table: pa.Table,
    *,
    samples: int = DEFAULT_SAMPLES,
    weight: str | None = None,
    advance: Advance = ignore_rows,
) -> dict[str, Any]:
    """Evaluate a classifier on a table.

    Rows of classes that the model does not know have no probability, so they are in no score. The report counts them,
    and has the accuracy that counts every one as a miss.

    Args:
        posterior: The posterior of a classifier.
        table: Labelled rows; rows without a class are left out, and so are rows of weight 0.
        samples: S.
        weight: Column with the weights of the rows in all means (`model.data.row_weights`); None: all are equal.
        advance: Called with the number of rows of each finished chunk.

    Returns:
        The report of `evaluate_classes`. ``unknown`` is None, or has ``rows``, the number of rows of unknown
        ``classes``, with rows of each, and ``accuracy``, with these rows as misses. ``left_out`` is the number of rows
        without a class or of weight 0.

    Raises:
        TableError: The target column is missing, no row has a class that the model knows, or a cell can't be used.
        OptionError: S is 0.
    """
    target = posterior.schema.target
    classes = target.classes or ()
    names = frozenset(classes)
    labels = labels_from_table(table, target.name)
    weights = None if weight is None else row_weights(table, weight, target=target.name)
    labelled = ~is_missing(labels) & (True if weights is None else weights > 0.0)
    if not labelled.any():
        raise TableError(f"no row has a value in the target column {target.name!r}; there is nothing to judge by")
    known = labelled & np.fromiter((label in names for label in labels), dtype=bool, count=len(labels))
    unknown = Counter(labels[labelled & ~known].tolist())
    if not known.any():
        raise TableError(
            f"no row of the target column {target.name!r} has a class that the model knows: found {_listed(unknown)}, "
            f"it knows {', '.join(map(repr, classes[:10]))}{', …' if len(classes) > 10 else ''}; give the column in "
            "the spelling of the training, or train again with these classes"
        )
    rows = np.flatnonzero(known)
    report = evaluate_classes(
        posterior,
        columns_from_table(rows_of(table, rows), posterior.schema),
        class_codes(labels[rows], classes, target.name).astype(np.int64),
        samples=samples,
        weights=None if weights is None else weights[rows],
        advance=advance,
    )
    shares = np.ones(len(labels)) if weights is None else weights
    right = report["accuracy"] * shares[known].sum() / shares[labelled].sum()
    facts = {"rows": unknown.total(), "classes": dict(unknown.most_common()), "accuracy": float(right)}
    return report | {"unknown": facts if unknown else None, "left_out": len(labels) - int(labelled.sum())}


def evaluate_classes(
    posterior: Posterior,
    columns: Columns,
    labels: NDArray[np.int64],
    *,
    samples: int = DEFAULT_SAMPLES,
    weights: NDArray[np.float64] | None = None,
    advance: Advance = ignore_rows,
) -> dict[str, Any]:
    """Scores of class probabilities and prediction sets, over all rows and over parts of them.

    Args:
        posterior: The posterior of a classifier.
        columns: Canonical columns of the schema's features, ``[N]`` each.
        labels: Index of the class, ``[N]``.
        samples: S.
        weights: Weight of each row in all means, ``[N]``, positive; None: all are equal.
        advance: Called with the number of rows of each finished chunk.

    Returns:
        The scores of the probabilities that answers give (`model.evaluation.class_metrics.class_scores`), and ``raw``
        and ``calibrated`` (None without calibration), each with the same scores and with ``sets``
        (`model.evaluation.class_sets.set_scores`); ``sets``, those of answers; ``entropy``, its mean in nats, and
        ``epistemic_share`` of it; ``accuracy_of_kept`` (`model.evaluation.selective_accuracy`); ``by_class``;
        ``confusion``, weights of the rows by class and by predicted class, None with more than 100 classes;
        ``confused``, the most frequent pairs; ``by_confidence`` and ``by_category``
        (`model.evaluation.class_subgroups`).

    Raises:
        OptionError: S is 0.
    """
    judged = judge_classes(posterior, columns, samples, advance)
    sets = judged.sets(SET_COVERAGES)
    served = judged.served
    report = class_scores(served, labels, weights=weights)
    total = float(np.average(judged.entropy, weights=weights))
    epistemic = float(np.average(judged.epistemic_entropy, weights=weights))
    names = judged.classes
    predictions = served.argmax(axis=1)
    confusion = confusion_matrix(predictions, labels, len(names), weights)
    losses = row_log_loss(served, labels)
    return report | {
        "raw": _scores_of(judged, labels, weights, calibrated=False),
        "calibrated": None if judged.calibrated is None else _scores_of(judged, labels, weights, calibrated=True),
        "sets": set_scores(sets, labels, weights),
        "entropy": total,
        "epistemic_share": epistemic / total if total > 0.0 else 0.0,
        "accuracy_of_kept": accuracy_of_kept(predictions == labels, judged.entropy, weights),
        "by_class": _by_class(predictions, labels, names, losses, sets, weights),
        "confusion": confusion.tolist() if len(names) <= MOST_CLASSES_OF_A_MATRIX else None,
        "confused": _confused(confusion, names),
        "by_confidence": scores_by_confidence(served, labels, losses, sets[90], weights),
        "by_category": scores_by_category(served, labels, losses, sets[90], posterior.schema, columns, weights),
    }


def _scores_of(
    judged: JudgedClasses, labels: NDArray[np.int64], weights: NDArray[np.float64] | None, *, calibrated: bool
) -> dict[str, Any]:
    probabilities = judged.calibrated if calibrated and judged.calibrated is not None else judged.raw
    scores = class_scores(probabilities, labels, weights=weights)
    del scores["n"], scores["standard_errors"]
    return scores | {"sets": set_scores(judged.sets(SET_COVERAGES, calibrated=calibrated), labels, weights)}


def _by_class(
    predictions: NDArray[np.int64],
    labels: NDArray[np.int64],
    names: Sequence[str],
    losses: NDArray[np.float64],
    sets: dict[int, NDArray[np.bool_]],
    weights: NDArray[np.float64] | None,
) -> dict[str, dict[str, Any]]:
    shares = np.ones(len(labels)) if weights is None else weights
    total = np.bincount(labels, shares, minlength=len(names))
    summed = np.bincount(labels, shares * losses, minlength=len(names))
    of_sets = set_scores_by_class(sets, labels, names, weights)
    return {
        name: {
            **scores,
            "log_loss": float(summed[number] / total[number]) if total[number] > 0.0 else None,
            "sets": of_sets[name],
        }
        for number, (name, scores) in enumerate(scores_by_class(predictions, labels, names, weights).items())
    }


def _confused(confusion: NDArray[np.float64], names: Sequence[str]) -> list[dict[str, Any]]:
    """The most frequent pairs of a class and another one that it is taken for, the most frequent first."""
    wrong = confusion.copy()
    np.fill_diagonal(wrong, 0.0)
    order = np.argsort(-wrong, axis=None, kind="stable")[:MOST_CONFUSIONS]
    pairs = ((int(place) // len(names), int(place) % len(names)) for place in order)
    return [
        {"class": names[truth], "prediction": names[taken], "weight": float(wrong[truth, taken])}
        for truth, taken in pairs
        if wrong[truth, taken] > 0.0
    ]


def _listed(counts: Counter[str]) -> str:
    shown = ", ".join(f"{name!r} ({count})" for name, count in counts.most_common(5))
    return shown + (f" and {len(counts) - 5} more" if len(counts) > 5 else "")
