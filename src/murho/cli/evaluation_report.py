"""The report of `murho evaluate` as text: one table builder for numbers and classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.cli.shared import table_lines
from murho.model.evaluation.rows import BAND, FEW_ROWS
from murho.model.evaluation.summary import per_cent, plus_minus, significant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["MOST_GROUPS", "report_lines"]

MOST_GROUPS = 12
"""Most classes, categories and confusions in the text; JSON has all."""
MOST_CLASSES_OF_A_MATRIX = 8
"""With more classes the text has the most frequent confusions instead of the matrix."""
SCORES = {
    "log_loss": "log loss (nats)",
    "brier": "Brier score",
    "ece": "calibration error",
    "classwise_ece": "of each class",
}
OF_PARTS = ("accuracy", "log loss", "in 90 % set", "classes in it")


def report_lines(report: Mapping[str, Any], unit: str | None) -> list[str]:
    """An evaluation as lines for people.

    Args:
        report: The report of `model.evaluation.judging.evaluate_table`.
        unit: The target's unit, if known.
    """
    kinds = [kind for kind in ("raw", "calibrated") if report[kind]]
    tables = _of_classes(report, kinds) if "log_loss" in report else _of_numbers(report, kinds, unit)
    return [line for number, table in enumerate(tables) for line in ([""] if number else []) + table]


def _of_numbers(report: Mapping[str, Any], kinds: Sequence[str], unit: str | None) -> list[list[str]]:
    suffix, in_unit = (f" {unit}", f" ({unit})") if unit else ("", "")
    explained = "" if report["r2"] is None else f"   R² {report['r2']:.3f}"
    rank = "" if report["spearman"] is None else f"   Spearman of std and |error| {report['spearman']:.2f}"
    rmse, mae, nll, crps = (
        plus_minus(report[key], report["standard_errors"][key]) for key in ("rmse", "mae", "nll", "crps")
    )
    scores = [
        f"RMSE {rmse}{suffix}   MAE {mae}{suffix}{explained}   NLL {nll} nats   CRPS {crps}{suffix}",
        f"predicted std {significant(report['sharpness'])}{suffix} (rms), "
        f"{per_cent(report['epistemic_share'])} of its square epistemic{rank}",
    ]
    bands = _by_kind(
        f"central bands{in_unit}",
        {"coverage": per_cent, "mean width": significant, "interval score": significant},
        {kind: [report[kind][key] for key in ("coverage", "width", "interval_score")] for kind in kinds},
    )
    errors = _by_kind(
        "calibration error",
        dict.fromkeys(("of quantiles", "of bands"), "{:.3f}".format),
        {kind: list(report[kind]["calibration_error"].values()) for kind in kinds},
        ("mean |error|", "rms", "max"),
    )
    pit = [["PIT: % of rows in each tenth"]]
    pit += [[kind, *(f"{100.0 * share:.0f}" for share in report[kind]["pit"]["histogram"])] for kind in kinds]

    def covered(part: Mapping[str, Any]) -> list[str]:
        return [per_cent(part[kind]) for kind in kinds]

    by_std = [
        (f"{significant(part['std'][0])} to {significant(part['std'][1])}", part) for part in report["coverage_by_std"]
    ]
    return [
        scores,
        [*bands, _chance(report)],
        errors,
        table_lines(pit),
        _parts(
            f"{BAND} % band by std{in_unit}",
            by_std,
            ("RMSE", *kinds),
            lambda part: [significant(part["rmse"]), *covered(part)],
        ),
        *_by_category(report["coverage_by_category"], f"{BAND} % band by", kinds, covered),
    ]


def _of_classes(report: Mapping[str, Any], kinds: Sequence[str]) -> list[list[str]]:
    errors = report["standard_errors"]
    auc = "" if report["auc"] is None else f"   AUC {report['auc']:.3f}"
    headline = [
        f"log loss {plus_minus(report['log_loss'], errors['log_loss'])} nats   "
        f"accuracy {per_cent(report['accuracy'], errors['accuracy'])}   "
        f"balanced {per_cent(report['balanced_accuracy'])}{auc}",
        f"entropy {report['entropy']:.4g} nats on average, {per_cent(report['epistemic_share'])} of it epistemic",
    ]
    unknown = report.get("unknown")
    if unknown:
        listed = ", ".join(f"{name!r} {count}" for name, count in list(unknown["classes"].items())[:MOST_GROUPS])
        headline.append(
            f"{unknown['rows']} rows more are of classes that the model does not know ({listed}), and in no score; "
            f"counted as misses, accuracy is {per_cent(unknown['accuracy'])}. Train again to predict them"
        )
    scores = [["", *kinds]]
    scores += [[title, *(f"{report[kind][key]:.4f}" for kind in kinds)] for key, title in SCORES.items()]
    sets = _by_kind(
        "prediction sets",
        {"hold the class": per_cent, "classes in it": "{:.2f}".format},
        {kind: [report[kind]["sets"][key] for key in ("coverage", "size")] for kind in kinds},
    )
    kept = report["accuracy_of_kept"]
    kept_rows = [["the surest rows", *(f"{share} %" for share in kept)], ["accuracy", *map(per_cent, kept.values())]]

    def of_part(part: Mapping[str, Any]) -> list[str]:
        return [
            per_cent(part["accuracy"]),
            f"{part['log_loss']:.4f}",
            per_cent(part["coverage"]),
            f"{part['size']:.2f}",
        ]

    def of_class(part: Mapping[str, Any]) -> list[str]:
        recall, *others = of_part(part) if part["rows"] else [""]
        return [recall, "" if part["precision"] is None else per_cent(part["precision"]), *others]

    by_class = sorted(report["by_class"].items(), key=lambda item: -item[1]["rows"])
    by_confidence = [(per_cent(part["confidence"]), part) for part in report["by_confidence"]]
    return [
        headline,
        table_lines(scores),
        [*sets, _chance(report)],
        table_lines(kept_rows),
        _parts("class", by_class, ("recall", "precision", *OF_PARTS[1:]), of_class),
        _confusions(report),
        _parts("by probability of the likeliest class", by_confidence, OF_PARTS, of_part),
        *_by_category(report["by_category"], "by", OF_PARTS, of_part),
    ]


def _by_kind(
    title: str,
    shown: Mapping[str, Callable[[float], str]],
    found: Mapping[str, Sequence[Mapping[str, float]]],
    heads: Sequence[str] = (),
) -> list[str]:
    """A table with a row for raw and one for calibrated of each score.

    Args:
        title: Title of the table.
        shown: Title of each score, and how its values are shown.
        found: By kind, the values of each score.
        heads: Of the columns; none: the nominal coverages that are the names of the values.
    """
    names = next(iter(found.values()))[0]
    rows = [[title, "", *(heads or (f"{coverage} %" for coverage in names))]]
    for place, (score, text) in enumerate(shown.items()):
        for number, (kind, scores) in enumerate(found.items()):
            rows.append(["" if number else score, kind, *map(text, scores[place].values())])
    return table_lines(rows)


def _chance(report: Mapping[str, Any]) -> str:
    chance = (0.01 * BAND * (1.0 - 0.01 * BAND) / report["independent"]) ** 0.5
    return f"({100.0 * chance:.1f} points of a coverage of {BAND} % are chance: one standard error)"


def _parts(
    title: str,
    parts: Iterable[tuple[str, Mapping[str, Any]]],
    heads: Sequence[str],
    cells: Callable[[Mapping[str, Any]], list[str]],
) -> list[str]:
    """A table with a row for each part of the rows, by its name; cells are made of what the report says of it."""
    rows = []
    for name, part in parts:
        rows.append([name, str(part["rows"]), *cells(part), *(["few rows"] if part["rows"] < FEW_ROWS else [])])
    more = [f"and {len(rows) - MOST_GROUPS} more, see --json"] if len(rows) > MOST_GROUPS else []
    return [*table_lines([[title, "rows", *heads], *rows[:MOST_GROUPS]]), *more]


def _by_category(
    features: Mapping[str, Any], title: str, heads: Sequence[str], cells: Callable[[Mapping[str, Any]], list[str]]
) -> list[list[str]]:
    """A table for each feature, with a row for each category."""
    return [
        _parts(f"{title} {feature}", [(_name(part), part) for part in parts], heads, cells)
        for feature, parts in features.items()
    ]


def _name(part: Mapping[str, Any]) -> str:
    if "merged" in part:
        return f"({part['merged']} categories of under {FEW_ROWS} rows)"
    return "(missing)" if part["category"] is None else str(part["category"])


def _confusions(report: Mapping[str, Any]) -> list[str]:
    names = list(report["by_class"])
    if len(names) <= MOST_CLASSES_OF_A_MATRIX:
        rows = [["class / predicted class", *names]]
        rows += [[name, *map(significant, of_class)] for name, of_class in zip(names, report["confusion"], strict=True)]
    else:
        rows = [["most frequent confusions", "taken for", "rows"]]
        rows += [
            [pair["class"], pair["prediction"], significant(pair["weight"])]
            for pair in report["confused"][:MOST_GROUPS]
        ]
    return table_lines(rows)
