"""Evaluation of a posterior on labelled rows: in short, for benchmarks, and in full, for `murho evaluate`.

The way is the same for both kinds of target: read the targets, score the rows block by block, report. Kinds differ in
what is scored (`model.evaluation.row_scores`) and in the report of the scores, which is here.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.errors import TableError
from murho.model.evaluation.class_metrics import (
    SET_COVERAGES,
    accuracy_of_kept,
    confusion_matrix,
    row_log_loss,
    scores_by_class,
    scores_by_kind,
    set_scores,
)
from murho.model.evaluation.metrics import COVERAGES, RowWeights, pit_of, reliability
from murho.model.evaluation.row_scores import score_columns, score_rows
from murho.model.evaluation.subgroups import (
    BAND,
    category_features,
    equal_parts,
    scores_by_category,
    scores_of_part,
    spearman,
)
from murho.model.predictive.prediction import DEFAULT_SAMPLES
from murho.model.progress import ignore_rows
from murho.model.tables.columns import is_missing
from murho.model.tables.files import check_rows, column_blocks
from murho.model.tables.schema_inference import labels_from_table, row_weights, target_from_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.checkpoint.posterior import Posterior
    from murho.model.evaluation.row_scores import ClassScores, RowScores
    from murho.model.progress import Advance
    from murho.model.tables.schema import Columns, Schema

__all__ = [
    "coverage_by_std",
    "evaluate_in_full",
    "evaluate_rows",
    "evaluate_table",
]

ROWS_PER_CHUNK = 4_096
"""Rows encoded at a time; encoded rows can be many times as wide as the table."""
UNKNOWN = -1
"""Number of a class that the model does not know."""


def evaluate_table(
    posterior: Posterior,
    table: pa.Table,
    *,
    samples: int = DEFAULT_SAMPLES,
    weight: str | None = None,
    advance: Advance = ignore_rows,
) -> dict[str, Any]:
    """Evaluate a posterior on a table, in full: a block of rows after the other, of which only scores are kept.

    Rows of classes that a classifier does not know have no probability, so they are in no score. The report counts
    them, and has the accuracy that counts every one as a miss.

    Args:
        posterior: The posterior.
        table: Labelled rows, as `model.tables.files.read_table` or `model.tables.files.open_table` returns them;
            rows without a target are left out, and so are rows of weight 0.
        samples: S.
        weight: Column with the weights of the rows in all means (`model.tables.schema_inference`); None: all are equal.
        advance: Called with the number of rows of each finished chunk.

    Returns:
        The report of `evaluate_in_full`, and ``left_out``, the number of rows without a target or of weight 0. A
        classifier's also has ``unknown``: None, or ``rows``, the number of rows of unknown ``classes``, with rows of
        each, and ``accuracy``, with these rows as misses.

    Raises:
        TableError: The target column is missing, no row has a target, or one that the model knows, or a cell can't be
            used.
        OptionError: S is 0.
    """
    target = posterior.schema.target
    classes, name = target.classes, target.name
    labels = None if classes is None else labels_from_table(table, name)
    targets = target_from_table(table, target) if labels is None else _numbers(labels, classes or ())
    if labels is None:
        posterior.likelihood.require_targets(targets, name)
    weights = np.ones(len(targets)) if weight is None else row_weights(table, weight, target=name)
    labelled = ~np.isnan(targets) & (weights > 0.0)
    if not labelled.any():
        raise TableError(f"no row has a value in the target column {name!r}; there is nothing to judge by")
    known = labelled if labels is None else labelled & (targets != UNKNOWN)
    unknown = Counter[str]() if labels is None else Counter(labels[labelled & ~known].tolist())
    if not known.any():
        raise TableError(
            f"no row of the target column {name!r} has a class that the model knows: found "
            f"{_listed([f'{label!r} ({count})' for label, count in unknown.most_common()], 5)}, it knows "
            f"{_listed(list(map(repr, classes or ())), 10)}; give the column in the spelling of the training, or train "
            "again with these classes"
        )
    rows = np.flatnonzero(known)
    check_rows(table, posterior.schema, rows)
    blocks, chosen = column_blocks(table, posterior.schema, rows), None if weight is None else weights[rows]
    report = _report(posterior, blocks, targets[rows], samples=samples, weights=chosen, advance=advance)
    if labels is not None:
        right = float(report["accuracy"] * weights[known].sum() / weights[labelled].sum())
        facts = {"rows": unknown.total(), "classes": dict(unknown.most_common()), "accuracy": right}
        report["unknown"] = facts if unknown else None
    return report | {"left_out": len(targets) - int(labelled.sum())}


def _numbers(labels: NDArray[Any], classes: Sequence[str]) -> NDArray[np.float64]:
    """Class numbers ``[N]``: NaN for a missing label, -1 for an unknown one."""
    known = {name: number for number, name in enumerate(classes)}
    numbers = np.fromiter((known.get(label, UNKNOWN) for label in labels), dtype=np.float64, count=len(labels))
    numbers[is_missing(labels)] = np.nan
    return numbers


def _listed(names: Sequence[str], most: int) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def evaluate_rows(
    posterior: Posterior,
    rows: NDArray[np.float32],
    targets: NDArray[np.float64],
    *,
    samples: int = DEFAULT_SAMPLES,
) -> dict[str, Any]:
    """Scores of predicted numbers, and coverage, width and interval score of the bands.

    Args:
        posterior: The posterior.
        rows: Encoded rows, ``[N, D]``.
        targets: ``[N]``, the target's unit.
        samples: S.

    Returns:
        `model.evaluation.row_scores.RowScores.report`.

    Raises:
        OptionError: S is 0.
    """
    return score_rows(posterior, rows, targets, samples=samples, calibration=posterior.calibration).report()


def evaluate_in_full(
    posterior: Posterior,
    columns: Columns,
    targets: NDArray[np.float64],
    *,
    samples: int = DEFAULT_SAMPLES,
    weights: NDArray[np.float64] | None = None,
    advance: Advance = ignore_rows,
) -> dict[str, Any]:
    """All scores of labelled rows, and scores of parts of them.

    Args:
        posterior: The posterior.
        columns: Canonical columns of the schema's features, ``[N]`` each.
        targets: ``[N]``, the target's unit, or numbers of classes.
        samples: S.
        weights: Weight of each row in all means, ``[N]``, positive; None: all are equal.
        advance: Called with the number of rows of each finished chunk.

    Returns:
        Of numbers the report of `evaluate_rows`, with more keys: ``sharpness``, the root mean square of ``std``;
        ``epistemic_share``, the epistemic share of that mean square; ``spearman``, the rank correlation of ``std`` and
        the absolute error of the mean, without weights; `coverage_by_std`, and ``coverage_by_category``, the coverage
        of the 90 % band by `model.evaluation.subgroups.scores_by_category`. ``raw`` and ``calibrated`` also have
        ``pinball`` (`model.evaluation.metrics.BandScores.pinball_report`), ``calibration_error`` and ``pit``
        (`model.evaluation.metrics.reliability`).

        Of classes `model.evaluation.class_metrics.scores_by_kind`, whose ``raw`` and ``calibrated`` also have ``sets``
        (`model.evaluation.class_metrics.set_scores`); ``sets``, those of answers; ``entropy``, its mean in nats, and
        ``epistemic_share`` of it; ``accuracy_of_kept``; ``by_class``; ``confusion``, weights of the rows by class and
        by predicted class, None with more than 100 classes; ``confused``, the most frequent pairs; ``by_confidence``
        (by the probability of the likeliest class) and ``by_category``: in each part the means ``accuracy``,
        ``confidence``, ``log_loss``, and ``coverage`` and ``size`` of the 90 % sets.

    Raises:
        OptionError: S is 0.
    """
    blocks = [(slice(0, len(targets)), columns)]
    return _report(posterior, blocks, targets, samples=samples, weights=weights, advance=advance)


def _report(
    posterior: Posterior,
    blocks: Iterable[tuple[slice, Columns]],
    targets: NDArray[np.float64],
    *,
    samples: int,
    weights: NDArray[np.float64] | None,
    advance: Advance,
) -> dict[str, Any]:
    """The report of `evaluate_in_full`, of rows that come in consecutive blocks, each with its place among the N."""
    schema = posterior.schema
    cells: dict[str, list[NDArray[Any]]] = {feature.name: [] for feature in category_features(schema)}
    texts: dict[str, str] = {}
    parts = []
    for block, columns in blocks:
        for name, found in cells.items():
            found.append(_in_memory_once(columns[name], texts))
        for start in range(block.start, block.stop, ROWS_PER_CHUNK):
            chunk = slice(start, min(start + ROWS_PER_CHUNK, block.stop))
            within = slice(chunk.start - block.start, chunk.stop - block.start)
            of_chunk = {name: column[within] for name, column in columns.items()}
            counts = None if weights is None else weights[chunk]
            parts.append(score_columns(posterior, of_chunk, targets[chunk], samples, counts))
            advance(chunk.stop - chunk.start)
    scores = parts[0].joined(parts)
    del parts
    categories = {name: np.concatenate(found) for name, found in cells.items()}
    if schema.target.classes is None:
        return _number_report(posterior, scores, weights, categories)
    return _class_report(schema, scores, targets.astype(np.int64), weights, categories)


def _in_memory_once(cells: NDArray[Any], texts: dict[str, str]) -> NDArray[Any]:
    """The cells, with one object for each text: every block has its own."""
    if cells.dtype != object:
        return cells
    return np.array([texts.setdefault(cell, cell) for cell in cells.tolist()], dtype=object)


def _number_report(
    posterior: Posterior, scores: RowScores, weights: NDArray[np.float64] | None, categories: Columns
) -> dict[str, Any]:
    rows = RowWeights.of(len(scores.targets), weights)
    report = scores.report(rows)
    pits = {"raw": pit_of(scores.scores), "calibrated": pit_of(scores.scores, posterior.calibration, scores.outside)}
    for kind, bands in (("raw", scores.raw), ("calibrated", scores.calibrated)):
        if bands is not None:
            report[kind] |= {"pinball": bands.pinball_report(), **reliability(pits[kind], weights)}
    square = scores.std**2
    share = (scores.epistemic / scores.raw_std) ** 2
    return report | {
        "sharpness": float(rows.mean(square)) ** 0.5,
        "epistemic_share": float(rows.mean(share * square) / rows.mean(square)),
        "spearman": spearman(scores.std, np.abs(scores.errors)),
        "coverage_by_std": coverage_by_std(scores, rows),
        "coverage_by_category": scores_by_category(_inside(scores), rows, posterior.schema, categories),
    }


def _inside(scores: RowScores) -> dict[str, NDArray[np.bool_] | None]:
    """Whether the target of each row lies in its 90 % band, ``[N]``, by kind."""
    place = COVERAGES.index(BAND)
    return {
        "raw": scores.raw.inside[:, place],
        "calibrated": None if scores.calibrated is None else scores.calibrated.inside[:, place],
    }


def coverage_by_std(scores: RowScores, rows: RowWeights) -> list[dict[str, Any]]:
    """Coverage of the 90 % band in ten parts of equal numbers of rows by predicted std, in ascending order.

    Returns:
        For each part ``std``, the smallest and the largest one, ``rmse``, to compare with it, and
        `model.evaluation.subgroups.scores_of_part`, with the coverage, ``raw`` and ``calibrated`` (None without
        calibration).
    """
    return [
        {
            "std": scores.std[part[[0, -1]]].tolist(),
            "rmse": float(np.sqrt(rows.of_rows(part).mean(scores.errors[part] ** 2))),
            **scores_of_part(_inside(scores), part, rows),
        }
        for part in equal_parts(scores.std)
    ]


MOST_CLASSES_OF_A_MATRIX = 100
"""With more classes there is no confusion matrix, only the most frequent confusions."""
MOST_CONFUSIONS = 20


def _class_report(
    schema: Schema,
    scores: ClassScores,
    labels: NDArray[np.int64],
    weights: NDArray[np.float64] | None,
    categories: Columns,
) -> dict[str, Any]:
    names, served, rows = schema.target.classes or (), scores.served, RowWeights.of(len(labels), weights)
    sets, predictions, losses = scores.sets(SET_COVERAGES), served.argmax(axis=1), row_log_loss(served, labels)
    report = scores_by_kind(scores.raw, scores.calibrated, labels, rows)
    report["sets"] = set_scores(sets, labels, weights)
    report["raw"]["sets"] = set_scores(scores.sets(SET_COVERAGES, calibrated=False), labels, weights)
    if scores.calibrated is not None:
        report["calibrated"]["sets"] = report["sets"]
    total = float(rows.mean(scores.entropy))
    confusion = confusion_matrix(predictions, labels, len(names), weights)
    values = {
        "accuracy": predictions == labels,
        "confidence": served.max(axis=1),
        "log_loss": losses,
        "coverage": sets[BAND][np.arange(len(labels)), labels],
        "size": sets[BAND].sum(axis=1),
    }
    return report | {
        "entropy": total,
        "epistemic_share": float(rows.mean(scores.epistemic_entropy)) / total if total > 0.0 else 0.0,
        "accuracy_of_kept": accuracy_of_kept(predictions == labels, scores.entropy, weights),
        "by_class": {
            name: {**found, **_of_class(np.flatnonzero(labels == number), labels, losses, sets, rows)}
            for number, (name, found) in enumerate(scores_by_class(predictions, labels, names, weights).items())
        },
        "confusion": confusion.tolist() if len(names) <= MOST_CLASSES_OF_A_MATRIX else None,
        "confused": _confused(confusion, names),
        "by_confidence": [scores_of_part(values, part, rows) for part in equal_parts(values["confidence"])],
        "by_category": scores_by_category(values, rows, schema, categories),
    }


def _of_class(
    part: NDArray[np.intp],
    labels: NDArray[np.int64],
    losses: NDArray[np.float64],
    sets: dict[int, NDArray[np.bool_]],
    rows: RowWeights,
) -> dict[str, Any]:
    """Log loss and sets of the rows of one class; both are None without rows."""
    if not len(part):
        return {"log_loss": None, "sets": None}
    chosen = rows.of_rows(part)
    held = {coverage: of_rows[part] for coverage, of_rows in sets.items()}
    return {"log_loss": float(chosen.mean(losses[part])), "sets": set_scores(held, labels[part], chosen.shares)}


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
