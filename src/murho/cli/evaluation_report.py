"""An evaluation as text: the scores, and bands or sets. JSON and `murho report` have parts of the rows and the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from murho.cli.shared import table_lines
from murho.model.evaluation.judged_rows import BAND
from murho.model.evaluation.summary import per_cent, plus_minus, significant

MOST_UNKNOWN = 12
"""Most unknown classes in the text; JSON has all."""
SCORES = {"log_loss": "log loss (nats)", "brier": "Brier score", "ece": "calibration error"}


def report_lines(report: Mapping[str, Any], unit: str | None) -> list[str]:
    """Return an evaluation as lines for people.

    Args:
        report: The report of `model.evaluation.judging.evaluate_table`.
        unit: The target's unit, if known.
    """
    kinds = [kind for kind in ("raw", "calibrated") if report[kind]]
    lines = _of_classes(report, kinds) if "log_loss" in report else _of_numbers(report, kinds, unit)
    chance = (0.01 * BAND * (1.0 - 0.01 * BAND) / report["independent"]) ** 0.5
    return [*lines, f"({100.0 * chance:.1f} points of a coverage of {BAND} % are chance: one standard error)"]


def _of_numbers(report: Mapping[str, Any], kinds: Sequence[str], unit: str | None) -> list[str]:
    suffix, in_unit = (f" {unit}", f" ({unit})") if unit else ("", "")
    explained = "" if report["r2"] is None else f"   R² {report['r2']:.3f}"
    rank = "" if report["spearman"] is None else f"   Spearman of std and |error| {report['spearman']:.2f}"
    rmse, mae, nll, crps = (
        plus_minus(report[key], report["standard_errors"][key]) for key in ("rmse", "mae", "nll", "crps")
    )
    raw = f" (raw {significant(report['raw']['crps'], 3)})" if report["calibrated"] else ""
    rows = [[f"central bands{in_unit}", "", *(f"{level} %" for level in report["raw"]["coverage"])]]
    rows += [["coverage", kind, *map(per_cent, report[kind]["coverage"].values())] for kind in kinds]
    rows += [["mean width", kind, *map(significant, report[kind]["width"].values())] for kind in kinds]
    return [
        f"RMSE {rmse}{suffix}   MAE {mae}{suffix}{explained}   CRPS {crps}{suffix}{raw}   raw NLL {nll} nats",
        f"RMS std {significant(report['sharpness'])}{suffix}; {per_cent(report['epistemic_share'])} of the variance is "
        f"epistemic{rank}",
        "",
        *table_lines(rows),
    ]


def _of_classes(report: Mapping[str, Any], kinds: Sequence[str]) -> list[str]:
    errors, unknown = report["standard_errors"], report.get("unknown")
    auc = "" if report["auc"] is None else f"   AUC {report['auc']:.3f}"
    lines = [
        f"log loss {plus_minus(report['log_loss'], errors['log_loss'])} nats   "
        f"accuracy {per_cent(report['accuracy'], errors['accuracy'])}   "
        f"balanced {per_cent(report['balanced_accuracy'])}{auc}",
        f"entropy {report['entropy']:.4g} nats on average, {per_cent(report['epistemic_share'])} of it epistemic",
    ]
    if unknown:
        listed = ", ".join(f"{name!r} {count}" for name, count in list(unknown["classes"].items())[:MOST_UNKNOWN])
        lines.append(
            f"{unknown['rows']} rows more are of classes that the model does not know ({listed}), and in no score; "
            f"counted as misses, accuracy is {per_cent(unknown['accuracy'])}. Train again to predict them"
        )
    scores = [["", *kinds]]
    scores += [[title, *(f"{report[kind][key]:.4f}" for kind in kinds)] for key, title in SCORES.items()]
    sets = [["prediction sets", "", *(f"{level} %" for level in report["sets"]["coverage"])]]
    sets += [["hold the class", kind, *map(per_cent, report[kind]["sets"]["coverage"].values())] for kind in kinds]
    sets += [["classes in it", kind, *map("{:.2f}".format, report[kind]["sets"]["size"].values())] for kind in kinds]
    return [*lines, "", *table_lines(scores), "", *table_lines(sets)]
