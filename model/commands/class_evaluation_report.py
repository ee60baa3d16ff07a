"""The report of `murho evaluate` on a classifier as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.commands.text_table import table_lines
from murho.model.evaluation.class_sets import SET_COVERAGES
from murho.model.evaluation.class_summary import per_cent
from murho.model.evaluation.metrics import plus_minus
from murho.model.evaluation.selective_accuracy import SHARES_KEPT
from murho.model.evaluation.subgroup_coverage import BAND, FEW_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["class_report_lines"]

MOST_GROUPS = 12
"""Most classes, categories and confusions in the text; JSON has all."""
SCORES = {
    "log_loss": "log loss (nats)",
    "brier": "Brier score",
    "ece": "calibration error",
    "classwise_ece": "of each class",
}
MOST_CLASSES_OF_A_MATRIX = 8
"""With more classes the text has the most frequent confusions instead of the matrix."""
OF_SETS = ("in 90 % set", "classes in it")


def class_report_lines(report: Mapping[str, Any]) -> list[str]:
    """An evaluation as lines for people.

    Args:
        report: The report of `model.evaluation.evaluate_classes.evaluate_class_table`.
    """
    kinds = [kind for kind in ("raw", "calibrated") if report[kind]]
    return [
        *_headline(report),
        "",
        *_scores(report, kinds),
        "",
        *_sets(report, kinds),
        "",
        *_kept(report),
        "",
        *_by_class(report),
        "",
        *_confusions(report),
        *_by_confidence(report),
        *_by_category(report),
    ]


def _headline(report: Mapping[str, Any]) -> list[str]:
    errors = report["standard_errors"]
    auc = "" if report["auc"] is None else f"   AUC {report['auc']:.3f}"
    lines = [
        f"log loss {plus_minus(report['log_loss'], errors['log_loss'])} nats   "
        f"accuracy {per_cent(report['accuracy'], errors['accuracy'])}   "
        f"balanced {per_cent(report['balanced_accuracy'])}{auc}",
        f"entropy {report['entropy']:.4g} nats on average, {per_cent(report['epistemic_share'])} of it epistemic",
    ]
    unknown = report.get("unknown")
    if unknown:
        listed = ", ".join(f"{name!r} {count}" for name, count in list(unknown["classes"].items())[:MOST_GROUPS])
        lines.append(
            f"{unknown['rows']} rows more are of classes that the model does not know ({listed}), and in no score; "
            f"counted as misses, accuracy is {per_cent(unknown['accuracy'])}. Train again to predict them"
        )
    return lines


def _scores(report: Mapping[str, Any], kinds: Sequence[str]) -> list[str]:
    rows = [["", *kinds]]
    rows += [[title, *(f"{report[kind][key]:.4f}" for kind in kinds)] for key, title in SCORES.items()]
    return table_lines(rows)


def _sets(report: Mapping[str, Any], kinds: Sequence[str]) -> list[str]:
    rows = [["prediction sets", "", *(f"{coverage} %" for coverage in SET_COVERAGES)]]
    for key, title in (("coverage", "hold the class"), ("size", "classes in it")):
        for kind in kinds:
            values = report[kind]["sets"][key]
            shown = (
                per_cent(values[str(at)]) if key == "coverage" else f"{values[str(at)]:.2f}" for at in SET_COVERAGES
            )
            rows.append([title if kind == kinds[0] else "", kind, *shown])
    chance = (0.01 * BAND * (1.0 - 0.01 * BAND) / report["n"]) ** 0.5
    return [
        *table_lines(rows),
        f"({100.0 * chance:.1f} points of a coverage of {BAND} % are chance: one standard error)",
    ]


def _kept(report: Mapping[str, Any]) -> list[str]:
    kept = report["accuracy_of_kept"]
    return table_lines(
        [
            ["the surest rows", *(f"{share} %" for share in SHARES_KEPT)],
            ["accuracy", *(per_cent(kept[str(share)]) for share in SHARES_KEPT)],
        ]
    )


def _by_class(report: Mapping[str, Any]) -> list[str]:
    classes = sorted(report["by_class"].items(), key=lambda item: -item[1]["n"])
    rows = [["class", "rows", "recall", "precision", "log loss", *OF_SETS]]
    for name, scores in classes[:MOST_GROUPS]:
        sets = scores["sets"]
        of_sets = ["", ""] if sets is None else [per_cent(sets["coverage"]["90"]), f"{sets['size']['90']:.2f}"]
        loss = "" if scores["log_loss"] is None else f"{scores['log_loss']:.4f}"
        shares = ("" if scores[key] is None else per_cent(scores[key]) for key in ("recall", "precision"))
        rows.append([name, str(scores["n"]), *shares, loss, *of_sets, *_few(scores["n"] < FEW_ROWS)])
    return [*table_lines(rows), *_more(len(classes))]


def _confusions(report: Mapping[str, Any]) -> list[str]:
    names = list(report["by_class"])
    if len(names) <= MOST_CLASSES_OF_A_MATRIX:
        matrix = [["class / predicted class", *names]]
        matrix += [
            [name, *(f"{weight:.4g}" for weight in row)] for name, row in zip(names, report["confusion"], strict=True)
        ]
        return table_lines(matrix)
    confused = report["confused"]
    if not confused:
        return ["no row is taken for another class"]
    rows = [["most frequent confusions", "taken for", "rows"]]
    rows += [[pair["class"], pair["prediction"], f"{pair['weight']:.4g}"] for pair in confused[:MOST_GROUPS]]
    return table_lines(rows)


def _by_confidence(report: Mapping[str, Any]) -> list[str]:
    rows = [["by probability of the likeliest class", "rows", "accuracy", "log loss", *OF_SETS]]
    rows += [[per_cent(group["confidence"]), *_group(group)] for group in report["by_confidence"]]
    return ["", *table_lines(rows)]


def _by_category(report: Mapping[str, Any]) -> list[str]:
    lines = []
    for feature, groups in report["by_category"].items():
        rows = [[f"by {feature}", "rows", "accuracy", "log loss", *OF_SETS]]
        rows += [[_name(group), *_group(group)] for group in groups[:MOST_GROUPS]]
        lines += ["", *table_lines(rows), *_more(len(groups))]
    return lines


def _group(group: Mapping[str, Any]) -> list[str]:
    return [
        str(group["rows"]),
        per_cent(group["accuracy"]),
        f"{group['log_loss']:.4f}",
        per_cent(group["coverage"]),
        f"{group['size']:.2f}",
        *_few(group["few"]),
    ]


def _name(group: Mapping[str, Any]) -> str:
    if "merged" in group:
        return f"({group['merged']} categories of under {FEW_ROWS} rows)"
    return "(missing)" if group["category"] is None else str(group["category"])


def _few(few: bool) -> list[str]:
    return ["few rows"] if few else []


def _more(count: int) -> list[str]:
    return [f"and {count - MOST_GROUPS} more, see --json"] if count > MOST_GROUPS else []
