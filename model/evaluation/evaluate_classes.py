"""Evaluation of a classifier on labelled rows, for `murho evaluate`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from murho.model.checkpoint.row_answers import in_pieces
from murho.model.distributions.classes import entropy
from murho.model.encoding.imputation import rows_to_impute
from murho.model.errors import OptionError, TableError
from murho.model.evaluation.class_metrics import (
    SET_COVERAGES,
    accuracy_of_kept,
    class_scores,
    confusion_matrix,
    row_log_loss,
    scores_by_class,
    set_scores,
    set_scores_by_class,
)
from murho.model.evaluation.row_scores import CollectedCategories
from murho.model.evaluation.subgroups import scores_by_category, scores_by_confidence
from murho.model.predictive.plans import ClassPlan
from murho.model.predictive.prediction import DEFAULT_SAMPLES, PredictOptions
from murho.model.progress import ignore_rows
from murho.model.tables.columns import is_missing
from murho.model.tables.files import check_rows, column_blocks
from murho.model.tables.schema_inference import class_codes, labels_from_table, row_weights

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.calibration.classes import ClassCalibration
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.progress import Advance
    from murho.model.tables.schema import Columns

__all__ = [
    "JudgedClasses",
    "evaluate_class_table",
    "evaluate_classes",
    "judge_class_blocks",
    "judge_classes",
]


ROWS_PER_CHUNK = 4_096
"""Rows encoded at a time; encoded rows can be many times as wide as the table."""
VALUES_PER_PASS = 2**22
"""Probabilities of rows, draws and classes at a time: 32 MiB."""
MOST_ROWS_PER_PASS = 256


@dataclass(frozen=True, slots=True)
class JudgedClasses:
    """Probabilities of N rows.

    Attributes:
        classes: Names of the C classes.
        raw: Raw probabilities, ``[N, C]``.
        calibrated: Calibrated ones, ``[N, C]``; None without calibration.
        epistemic_entropy: Mutual information of class and weights in the served probabilities, nats, ``[N]``.
        calibration: The calibration of the checkpoint, or None.
    """

    classes: tuple[str, ...]
    raw: NDArray[np.float64]
    calibrated: NDArray[np.float64] | None
    epistemic_entropy: NDArray[np.float64]
    calibration: ClassCalibration | None

    @property
    def served(self) -> NDArray[np.float64]:
        """The probabilities that answers give, ``[N, C]``."""
        return self.raw if self.calibrated is None else self.calibrated

    @property
    def entropy(self) -> NDArray[np.float64]:
        """Entropy of the served probabilities, nats, ``[N]``."""
        found: NDArray[np.float64] = entropy(torch.from_numpy(self.served), dim=1).numpy()
        return found

    def sets(self, coverages: Sequence[int], *, calibrated: bool = True) -> dict[int, NDArray[np.bool_]]:
        """Prediction sets by nominal coverage, per cent: whether each class is in each row's set, ``[N, C]``.

        Args:
            coverages: In per cent.
            calibrated: Whether to use the calibration, if there is one; else the sets are raw.
        """
        use = calibrated and self.calibrated is not None
        probabilities = torch.from_numpy(self.served if use else self.raw)
        calibration = self.calibration if use else None
        plans = {coverage: _plan(0.01 * coverage, calibration, self.classes) for coverage in coverages}
        return {coverage: plan.sets(probabilities).numpy() for coverage, plan in plans.items()}


def judge_classes(posterior: Posterior, columns: Columns, samples: int, advance: Advance) -> JudgedClasses:
    """Compute the probabilities of all rows, a chunk at a time; missing cells that training rows had not are imputed.

    Args:
        posterior: The posterior of a classifier.
        columns: Canonical columns of the schema's features, ``[N]`` each.
        samples: S, at least 1.
        advance: Called with the number of rows of each finished chunk.

    Raises:
        OptionError: S is 0: the mu-only network has no doubt to judge.
    """
    count = len(next(iter(columns.values())))
    return judge_class_blocks(posterior, [(slice(0, count), columns)], count, samples, advance)


def judge_class_blocks(
    posterior: Posterior, blocks: Iterable[tuple[slice, Columns]], count: int, samples: int, advance: Advance
) -> JudgedClasses:
    """`judge_classes` of rows that come in blocks, of which only probabilities are kept.

    Args:
        posterior: The posterior of a classifier.
        blocks: The place of each block among the N rows, and its columns, ``[B]`` each.
        count: N.
        samples: S, at least 1.
        advance: Called with the number of rows of each finished chunk.

    Raises:
        OptionError: S is 0.
    """
    if samples < 1:
        raise OptionError("judging a posterior takes at least one draw")
    classes = posterior.schema.target.classes or ()
    joined = {"raw": np.empty((count, len(classes))), "epistemic_entropy": np.empty(count)}
    if posterior.calibration is not None:
        joined["served"] = np.empty((count, len(classes)))
    for block, columns in blocks:
        for start in range(0, block.stop - block.start, ROWS_PER_CHUNK):
            chunk = {name: column[start : start + ROWS_PER_CHUNK] for name, column in columns.items()}
            part = _judged(posterior, chunk, samples)
            rows = len(part["raw"])
            for name, values in joined.items():
                values[block.start + start : block.start + start + rows] = part[name]
            advance(rows)
    return JudgedClasses(
        classes=classes,
        raw=joined["raw"],
        calibrated=joined.get("served"),
        epistemic_entropy=joined["epistemic_entropy"],
        calibration=posterior.calibration,
    )


def _judged(posterior: Posterior, columns: Columns, samples: int) -> dict[str, NDArray[np.float64]]:
    """Arrays ``[B, …]`` of a chunk of rows, in order."""
    parts, numbers = [], []
    for rows, part, imputed in in_pieces(columns, rows_to_impute(posterior.schema, columns), posterior.encoder.width):
        encoded = posterior.encoder.encode_copies(part) if imputed else posterior.encoder.encode(part)
        parts += _passes(posterior, encoded, samples)
        numbers.append(rows)
    order = np.argsort(np.concatenate(numbers))
    return {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]}


@torch.inference_mode()
def _passes(posterior: Posterior, encoded: NDArray[np.float32], samples: int) -> list[dict[str, NDArray[np.float64]]]:
    """Arrays of encoded rows ``[B, D]``, or R imputed copies of each ``[R, B, D]``, by passes through the network."""
    classes, device = posterior.schema.target.classes or (), posterior.device
    per_pass = max(1, min(MOST_ROWS_PER_PASS, VALUES_PER_PASS // (samples * len(classes))))
    raw_plan = _plan(0.9, None, classes, device)
    plan = raw_plan if posterior.calibration is None else _plan(0.9, posterior.calibration, classes, device)
    found = []
    for start in range(0, encoded.shape[-2], per_pass):
        rows = torch.from_numpy(encoded[..., start : start + per_pass, :]).to(device)
        drawn = posterior.drawn(rows, samples, posterior.seed)
        predictive = drawn.predictive()
        served = plan.probabilities(predictive, drawn.outside)
        doubt = entropy(served, dim=1) - predictive.settled(served).expected_entropy
        found.append(
            {
                "raw": _array(raw_plan.probabilities(predictive, drawn.outside)),
                "served": _array(served),
                "epistemic_entropy": _array(doubt.clamp_min(0.0)),
            }
        )
    return found


def _plan(
    coverage: float,
    calibration: ClassCalibration | None,
    classes: tuple[str, ...],
    device: torch.device | None = None,
) -> ClassPlan:
    return ClassPlan.of(PredictOptions(coverage=coverage), calibration, device or torch.device("cpu"), classes)


def _array(values: Tensor) -> NDArray[Any]:
    array: NDArray[Any] = values.cpu().numpy().copy()
    return array


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
        weight: Column with the weights of the rows in all means (`model.tables.schema_inference`); None: all are equal.
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
    check_rows(table, posterior.schema, rows)
    report = _report(
        posterior,
        column_blocks(table, posterior.schema, rows),
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
        (`model.evaluation.class_metrics.set_scores`); ``sets``, those of answers; ``entropy``, its mean in nats, and
        ``epistemic_share`` of it; ``accuracy_of_kept`` (`model.evaluation.class_metrics`); ``by_class``;
        ``confusion``, weights of the rows by class and by predicted class, None with more than 100 classes;
        ``confused``, the most frequent pairs; ``by_confidence`` and ``by_category``
        (`model.evaluation.subgroups`).

    Raises:
        OptionError: S is 0.
    """
    blocks = [(slice(0, len(labels)), columns)]
    return _report(posterior, blocks, labels, samples=samples, weights=weights, advance=advance)


def _report(
    posterior: Posterior,
    blocks: Iterable[tuple[slice, Columns]],
    labels: NDArray[np.int64],
    *,
    samples: int,
    weights: NDArray[np.float64] | None,
    advance: Advance,
) -> dict[str, Any]:
    """The report of `evaluate_classes`, of rows that come in blocks, each with its place among the N rows."""
    categories = CollectedCategories(posterior.schema, len(labels))
    judged = judge_class_blocks(posterior, categories.of(blocks), len(labels), samples, advance)
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
        "by_category": scores_by_category(
            served, labels, losses, sets[90], posterior.schema, categories.columns, weights
        ),
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
