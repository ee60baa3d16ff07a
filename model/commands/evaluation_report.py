"""The report of `murho evaluate` as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.commands.text_table import table_lines
from murho.model.evaluation.metrics import COVERAGES
from murho.model.evaluation.pit import HISTOGRAM_BINS
from murho.model.evaluation.subgroup_coverage import BAND, FEW_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["report_lines"]

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
