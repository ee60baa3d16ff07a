"""The command `murho evaluate`: scores of a checkpoint on labelled rows.

Imports of numpy and torch wait until the command runs, so that its ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path  # noqa: TC003 - typer reads annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from murho.cli.shared import (
    CheckpointsOption,
    DeviceOption,
    JsonOption,
    ModelOption,
    VersionOption,
    naming,
    only_checkpoint,
    print_json,
    print_lines,
    table_lines,
)
from murho.model.evaluation.class_metrics import SET_COVERAGES, SHARES_KEPT, per_cent
from murho.model.evaluation.metrics import COVERAGES, HISTOGRAM_BINS, plus_minus
from murho.model.evaluation.subgroups import BAND, FEW_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "class_report_lines",
    "evaluate",
    "report_lines",
]


MOST_CATEGORIES = 12
"""Most categories of a feature in the text; JSON has all categories."""


def report_lines(report: Mapping[str, Any], unit: str | None) -> list[str]:
    """An evaluation as lines for people.

    Args:
        report: The report of `model.evaluation.evaluate.evaluate_in_full`.
        unit: The target's unit, if known.
    """
    kinds = [kind for kind in ("raw", "calibrated") if report[kind]]
    return [
        *_scores(report, unit),
        "",
        *_bands(report, kinds, unit),
        "",
        *_reliability(report, kinds),
        "",
        *_by_std(report, kinds, unit),
        *_by_category(report, kinds),
    ]


def _scores(report: Mapping[str, Any], unit: str | None) -> list[str]:
    suffix = f" {unit}" if unit else ""
    explained = "" if report["r2"] is None else f"   R² {report['r2']:.3f}"
    rank = "" if report["spearman"] is None else f"   Spearman of std and |error| {report['spearman']:.2f}"
    return [
        f"RMSE {report['rmse']:.4g}{suffix}   MAE {report['mae']:.4g}{suffix}{explained}   "
        f"NLL {report['nll']:.3f} nats   CRPS {report['crps']:.4g}{suffix}",
        f"predicted std {report['sharpness']:.4g}{suffix} (rms), {_percent(report['epistemic_share'])} of its square "
        f"epistemic{rank}",
    ]


def _bands(report: Mapping[str, Any], kinds: Sequence[str], unit: str | None) -> list[str]:
    rows = [["central bands" + (f" ({unit})" if unit else ""), "", *(f"{coverage} %" for coverage in COVERAGES)]]
    titles = {"coverage": "coverage", "width": "mean width", "interval_score": "interval score"}
    for key, title in titles.items():
        shown = _percent if key == "coverage" else _short
        for kind in kinds:
            values = report[kind][key]
            first = title if kind == kinds[0] else ""
            rows.append([first, kind, *(shown(values[str(coverage)]) for coverage in COVERAGES)])
    chance = (0.01 * BAND * (1.0 - 0.01 * BAND) / report["n"]) ** 0.5
    return [
        *table_lines(rows),
        f"({100.0 * chance:.1f} points of a coverage of {BAND} % are chance: one standard error)",
    ]


def _reliability(report: Mapping[str, Any], kinds: Sequence[str]) -> list[str]:
    errors = [["calibration error", "", "mean |error|", "rms", "max", "area"]]
    for name in ("quantiles", "bands"):
        for kind in kinds:
            values = report[kind]["calibration_error"][name]
            shown = (f"{values[key]:.3f}" for key in ("mean_absolute", "rms", "max", "area"))
            errors.append([f"of {name}" if kind == kinds[0] else "", kind, *shown])
    pinball = [["pinball loss", "mean of 99", "5 %", "50 %", "95 %"]]
    pit = [["PIT: % of rows in each tenth", *[""] * HISTOGRAM_BINS, "Kolmogorov-Smirnov"]]
    for kind in kinds:
        losses = report[kind]["pinball"]
        pinball.append([kind, *(_short(losses[key]) for key in ("mean", "5", "50", "95"))])
        shares = (f"{100.0 * share:.0f}" for share in report[kind]["pit"]["histogram"])
        pit.append([kind, *shares, f"{report[kind]['pit']['ks']:.3f}"])
    return [*table_lines(errors), "", *table_lines(pinball), "", *table_lines(pit)]


def _by_std(report: Mapping[str, Any], kinds: Sequence[str], unit: str | None) -> list[str]:
    title = f"{BAND} % band by std" + (f" ({unit})" if unit else "")
    rows = [[title, "rows", "RMSE", *kinds]]
    for group in report["coverage_by_std"]:
        low, high = (_short(value) for value in group["std"])
        rows.append([f"{low} to {high}", str(group["rows"]), _short(group["rmse"]), *_covered(group, kinds)])
    return table_lines(rows)


def _by_category(report: Mapping[str, Any], kinds: Sequence[str]) -> list[str]:
    lines = []
    for feature, groups in report["coverage_by_category"].items():
        rows = [[f"{BAND} % band by {feature}", "rows", *kinds]]
        rows += [[_name(group), str(group["rows"]), *_covered(group, kinds)] for group in groups[:MOST_CATEGORIES]]
        lines += ["", *table_lines(rows)]
        if len(groups) > MOST_CATEGORIES:
            lines.append(f"and {len(groups) - MOST_CATEGORIES} more, see --json")
    return lines


def _name(group: Mapping[str, Any]) -> str:
    if "merged" in group:
        return f"({group['merged']} categories of under {FEW_ROWS} rows)"
    return "(missing)" if group["category"] is None else str(group["category"])


def _covered(group: Mapping[str, Any], kinds: Sequence[str]) -> list[str]:
    return [*(_percent(group[kind]) for kind in kinds), *(["few rows"] if group["few"] else [])]


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def _short(value: float) -> str:
    return f"{value:.4g}"


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
        *_class_scores(report, kinds),
        "",
        *_sets(report, kinds),
        "",
        *_kept(report),
        "",
        *_by_class(report),
        "",
        *_confusions(report),
        *_by_confidence(report),
        *_classes_by_category(report),
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


def _class_scores(report: Mapping[str, Any], kinds: Sequence[str]) -> list[str]:
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


def _classes_by_category(report: Mapping[str, Any]) -> list[str]:
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


def _few(few: bool) -> list[str]:
    return ["few rows"] if few else []


def _more(count: int) -> list[str]:
    return [f"and {count - MOST_GROUPS} more, see --json"] if count > MOST_GROUPS else []


def evaluate(
    data: Annotated[Path, typer.Argument(help="File with the target column: CSV, Parquet, Arrow, JSON or Excel.")],
    model: ModelOption = None,
    checkpoints: CheckpointsOption = "checkpoints",
    version: VersionOption = None,
    weight: Annotated[
        str | None, typer.Option(help="Column with the weights of the rows; rows of weight 0 are left out.")
    ] = None,
    device: DeviceOption = "auto",
    json: JsonOption = False,
) -> None:
    """Judge a checkpoint on labelled rows."""
    from murho.model.checkpoint.stores import store_at
    from murho.model.runtime import check_device, resolve_device, use_threads_for_answering
    from murho.model.tables.files import require_file

    # First what can be said at once; then the imports that take seconds.
    check_device(device)
    store = store_at(checkpoints)
    directory = store.find(model or only_checkpoint(store), version)
    require_file(data)
    from murho.cli.shared import check_first_rows
    from murho.model.tables.files import open_table

    table = open_table(data)
    with naming(data):
        check_first_rows(table, directory, labelled=True)
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.evaluation.evaluate import evaluate_table
    from murho.model.progress import advancing

    use_threads_for_answering()
    posterior = Posterior.load(directory, resolve_device(device))
    with naming(data), advancing("judging", table.num_rows) as advance:
        report = evaluate_table(posterior, table, weight=weight, advance=advance)
    left_out = report.pop("left_out")
    if left_out:
        or_weight = "" if weight is None else f" or of {weight!r} 0"
        sys.stderr.write(f"left out {left_out} rows without a value of {posterior.schema.target.name!r}{or_weight}\n")
    if json:
        print_json(report)
        return
    title = f"{posterior.name} version {posterior.version} on {report['n']} rows"
    target = posterior.schema.target
    lines = report_lines(report, target.unit) if target.classes is None else class_report_lines(report)
    print_lines([title, *lines])
