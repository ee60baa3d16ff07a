"""The report of `murho evaluate` as text: one table builder for numbers and classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.cli.shared import table_lines
from murho.model.evaluation.class_metrics import SET_COVERAGES, SHARES_KEPT
from murho.model.evaluation.metrics import COVERAGES, HISTOGRAM_BINS
from murho.model.evaluation.subgroups import BAND, FEW_ROWS
from murho.model.evaluation.summary import per_cent, plus_minus

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
        report: The report of `model.evaluation.evaluate.evaluate_table`.
        unit: The target's unit, if known.
    """
    kinds = [kind for kind in ("raw", "calibrated") if report[kind]]
    tables = _of_classes(report, kinds) if "log_loss" in report else _of_numbers(report, kinds, unit)
    return [line for number, table in enumerate(tables) for line in ([""] if number else []) + table]


def _of_numbers(report: Mapping[str, Any], kinds: Sequence[str], unit: str | None) -> list[list[str]]:
    suffix, in_unit = (f" {unit}", f" ({unit})") if unit else ("", "")
    explained = "" if report["r2"] is None else f"   R² {report['r2']:.3f}"
    rank = "" if report["spearman"] is None else f"   Spearman of std and |error| {report['spearman']:.2f}"
    scores = [
        f"RMSE {report['rmse']:.4g}{suffix}   MAE {report['mae']:.4g}{suffix}{explained}   "
        f"NLL {report['nll']:.3f} nats   CRPS {report['crps']:.4g}{suffix}",
        f"predicted std {report['sharpness']:.4g}{suffix} (rms), {per_cent(report['epistemic_share'])} of its square "
        f"epistemic{rank}",
    ]
    bands = [[f"central bands{in_unit}", "", *(f"{coverage} %" for coverage in COVERAGES)]]
    for key, title in (("coverage", "coverage"), ("width", "mean width"), ("interval_score", "interval score")):
        shown = per_cent if key == "coverage" else _short
        bands += _by_kind(title, {kind: map(shown, report[kind][key].values()) for kind in kinds})
    errors = [["calibration error", "", "mean |error|", "rms", "max", "area"]]
    for name in ("quantiles", "bands"):
        found = {kind: report[kind]["calibration_error"][name].values() for kind in kinds}
        errors += _by_kind(f"of {name}", {kind: [f"{value:.3f}" for value in of] for kind, of in found.items()})
    pinball = [["pinball loss", "mean of 99", "5 %", "50 %", "95 %"]]
    pinball += [[kind, *map(_short, report[kind]["pinball"].values())] for kind in kinds]
    pit = [["PIT: % of rows in each tenth", *[""] * HISTOGRAM_BINS, "Kolmogorov-Smirnov"]]
    for kind in kinds:
        shares = (f"{100.0 * share:.0f}" for share in report[kind]["pit"]["histogram"])
        pit.append([kind, *shares, f"{report[kind]['pit']['ks']:.3f}"])

    def covered(part: Mapping[str, Any]) -> list[str]:
        return [per_cent(part[kind]) for kind in kinds]

    by_std = [[f"{BAND} % band by std{in_unit}", "rows", "RMSE", *kinds]]
    for part in report["coverage_by_std"]:
        low, high = map(_short, part["std"])
        cells = [f"{low} to {high}", str(part["rows"]), _short(part["rmse"])]
        by_std.append([*cells, *covered(part), *_few(part["few"])])
    by_category = _by_category(report["coverage_by_category"], f"{BAND} % band by", kinds, covered)
    tables = [[*table_lines(bands), _chance(report)], *map(table_lines, (errors, pinball, pit, by_std))]
    return [scores, *tables, *by_category]


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
    sets = [["prediction sets", "", *(f"{coverage} %" for coverage in SET_COVERAGES)]]
    of_sets = {kind: report[kind]["sets"] for kind in kinds}
    sets += _by_kind("hold the class", {kind: map(per_cent, of["coverage"].values()) for kind, of in of_sets.items()})
    sizes = {kind: [f"{size:.2f}" for size in of["size"].values()] for kind, of in of_sets.items()}
    sets += _by_kind("classes in it", sizes)
    kept = [
        ["the surest rows", *(f"{share} %" for share in SHARES_KEPT)],
        ["accuracy", *map(per_cent, report["accuracy_of_kept"].values())],
    ]
    by_confidence = [["by probability of the likeliest class", "rows", *OF_PARTS]]
    by_confidence += [
        [per_cent(part["confidence"]), str(part["rows"]), *_of_part(part), *_few(part["few"])]
        for part in report["by_confidence"]
    ]
    return [
        headline,
        table_lines(scores),
        [*table_lines(sets), _chance(report)],
        table_lines(kept),
        _by_class(report["by_class"]),
        _confusions(report),
        table_lines(by_confidence),
        *_by_category(report["by_category"], "by", OF_PARTS, _of_part),
    ]


def _by_kind(title: str, kinds: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """A row for raw and one for calibrated, the first one with the title."""
    return [["" if number else title, kind, *cells] for number, (kind, cells) in enumerate(kinds.items())]


def _chance(report: Mapping[str, Any]) -> str:
    chance = (0.01 * BAND * (1.0 - 0.01 * BAND) / report["n"]) ** 0.5
    return f"({100.0 * chance:.1f} points of a coverage of {BAND} % are chance: one standard error)"


def _by_category(
    features: Mapping[str, Any], title: str, heads: Sequence[str], cells: Callable[[Mapping[str, Any]], list[str]]
) -> list[list[str]]:
    """A table for each feature, with a row for each category."""
    tables = []
    for feature, parts in features.items():
        rows = [[f"{title} {feature}", "rows", *heads]]
        rows += [[_name(part), str(part["rows"]), *cells(part), *_few(part["few"])] for part in parts[:MOST_GROUPS]]
        tables.append([*table_lines(rows), *_more(len(parts))])
    return tables


def _name(part: Mapping[str, Any]) -> str:
    if "merged" in part:
        return f"({part['merged']} categories of under {FEW_ROWS} rows)"
    return "(missing)" if part["category"] is None else str(part["category"])


def _of_part(part: Mapping[str, Any]) -> list[str]:
    shares = per_cent(part["accuracy"]), f"{part['log_loss']:.4f}", per_cent(part["coverage"])
    return [*shares, f"{part['size']:.2f}"]


def _by_class(classes: Mapping[str, Any]) -> list[str]:
    rows = [["class", "rows", "recall", "precision", *OF_PARTS[1:]]]
    for name, scores in sorted(classes.items(), key=lambda item: -item[1]["n"])[:MOST_GROUPS]:
        shares = ("" if scores[key] is None else per_cent(scores[key]) for key in ("recall", "precision"))
        of_rows = ["", "", ""]
        if scores["sets"] is not None:
            coverage, size = scores["sets"]["coverage"]["90"], scores["sets"]["size"]["90"]
            of_rows = [f"{scores['log_loss']:.4f}", per_cent(coverage), f"{size:.2f}"]
        rows.append([name, str(scores["n"]), *shares, *of_rows, *_few(scores["n"] < FEW_ROWS)])
    return [*table_lines(rows), *_more(len(classes))]


def _confusions(report: Mapping[str, Any]) -> list[str]:
    names = list(report["by_class"])
    if len(names) <= MOST_CLASSES_OF_A_MATRIX:
        rows = [["class / predicted class", *names]]
        rows += [[name, *map(_short, of_class)] for name, of_class in zip(names, report["confusion"], strict=True)]
    elif report["confused"]:
        rows = [["most frequent confusions", "taken for", "rows"]]
        rows += [
            [pair["class"], pair["prediction"], _short(pair["weight"])] for pair in report["confused"][:MOST_GROUPS]
        ]
    else:
        return ["no row is taken for another class"]
    return table_lines(rows)


def _short(value: float) -> str:
    return f"{value:.4g}"


def _few(few: bool) -> list[str]:
    return ["few rows"] if few else []


def _more(count: int) -> list[str]:
    return [f"and {count - MOST_GROUPS} more, see --json"] if count > MOST_GROUPS else []
