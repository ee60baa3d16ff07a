"""The parts of a report's page that are of classifiers alone: headline, surprising rows, table of scores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.evaluation.metrics import plus_minus
from murho.model.report.html_parts import Markup, bars, number, percent, table, text

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["class_cards", "class_rows", "class_scores_tables", "class_target"]

TITLES = {
    "accuracy": "accuracy",
    "log_loss": "log loss (nats)",
    "brier": "Brier score",
    "auc": "AUC",
    "ece": "calibration error (ECE)",
}


def class_cards(scores: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Title and value of the headline numbers."""
    errors = scores.get("standard_errors", {})

    def shown(key: str) -> str | None:
        return None if scores.get(key) is None else plus_minus(scores[key], errors.get(key))

    sets = scores.get("sets")
    covered = None if not sets else f"{100.0 * sets['coverage']['90']:.1f} %"
    size = None if not sets else f"{sets['size']['90']:.3g}"
    return [
        ("accuracy", shown("accuracy")),
        ("log loss (nats), lower is better", shown("log_loss")),
        ("Brier score, lower is better", shown("brier")),
        ("AUC", shown("auc")),
        ("of rows are in their 90 % prediction set", covered),
        ("classes in such a set, on average", size),
    ]


def class_rows(facts: Mapping[str, Any], rows: Mapping[str, Any]) -> str:
    """The rows whose own class was given the least probability."""
    features = [feature["name"] for feature in facts["table"]["features"]]
    cells = [
        [
            row["row"],
            row["observed"],
            percent(row["probability"], 2 if row["probability"] < 0.01 else 1),
            row["predicted"],
            percent(row["certainty"]),
            *(row["cells"][feature] for feature in features),
        ]
        for row in rows["surprising"]
    ]
    heads = ["row", "observed", "its probability", "predicted", "its probability", *features]
    return (
        "<h3>The most surprising rows</h3><p class='muted'>Rows of your table whose own class was given the least "
        "probability. Those at the top deserve a look: a wrong label, a typing error, or something that the features "
        "do not tell.</p>" + table(heads, cells, texts=0)
    )


def class_target(facts: Mapping[str, Any]) -> str:
    """The classes of the target, with their rows."""
    target = facts["target"]
    counts = target.get("counts")
    if counts is None:
        return f"<p>The target, {text(target['name'])}, has {len(target['classes'])} classes.</p>"
    rows = [[name, f"{count:,}"] for name, count in zip(target["classes"], counts, strict=True)]
    shown = bars(counts, f"rows of each class of {target['name']}")
    listed = table(["class", "rows"], rows)
    return (
        f"<p>The target, {text(target['name'])}, has {len(counts)} classes.</p>{shown}"
        f"<details><summary>Rows of each class</summary>{listed}</details>"
    )


def class_scores_tables(facts: Mapping[str, Any]) -> list[str]:
    """Tables of the scores, of the sets, and of each class."""
    scores = facts["scores"]
    kinds = [kind for kind in ("calibrated", "raw") if scores.get(kind)]
    rows: list[list[object]] = []
    for key, title in TITLES.items():
        values = [scores[kind].get(key) for kind in kinds]
        if any(value is not None for value in values):
            rows.append([title, *(number(value) for value in values)])
    parts: list[str] = ["<h3>Scores</h3>", table(["score", *kinds], rows)]
    if scores.get("sets"):
        sets = scores["sets"]
        heads = ["prediction set", "holds the class", "mean size"]
        lines = [
            [f"{name} %", percent(share), number(sets["size"][name], 3)] for name, share in sets["coverage"].items()
        ]
        parts += ["<h3>Prediction sets</h3>", table(heads, lines)]
    held_out = facts["held_out"]
    if held_out is not None:
        lines = [
            [name, f"{part['n']:,}", percent(part["recall"]), percent(part["precision"])]
            for name, part in held_out["by_class"].items()
        ]
        listed: Markup = table(["class", "rows", "recall", "precision"], lines)
        parts += ["<h3>By class</h3>", listed]
    return parts
