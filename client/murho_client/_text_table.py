"""A prediction as a table of text: the first and last rows, with the digits that their spreads leave sense in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho_client._prediction import Prediction

__all__ = ["body", "number", "shown_rows", "text_table", "title", "warnings_line"]

MAX_ROWS = 10
MAX_WARNINGS = 3
MAX_TEXT = 32
MAX_CLASSES = 10
"""With more classes the table has the probability of the likeliest one alone."""
AFTER_CLASSES = ("entropy", "epistemic_entropy", "prediction_set")


def number(value: float) -> str:
    """A level or threshold: `5`, `97.5`."""
    return f"{value:.12g}"


def shown_rows(prediction: Prediction) -> list[int]:
    """The rows of a table: all, or the first and last."""
    rows, half = len(prediction), MAX_ROWS // 2
    return list(range(rows)) if rows <= MAX_ROWS else [*range(half), *range(rows - half, rows)]


def title(prediction: Prediction) -> str:
    """What was predicted, by which model and how."""
    rows = "1 row" if len(prediction) == 1 else f"{len(prediction):,} rows"
    how = ["mean weights only" if prediction.samples == 0 else f"{prediction.samples} samples, seed {prediction.seed}"]
    if prediction.samples:
        how.append("calibrated" if prediction.calibrated else "not calibrated")
    return f"{prediction.target}: {rows}, {prediction.model} version {prediction.version}, {', '.join(how)}"


def warnings_line(prediction: Prediction) -> str:
    """The number of warnings, and where to read them; empty without any."""
    count = len(prediction.warnings)
    return f"{count} {'warning' if count == 1 else 'warnings'}: see .warnings" if count else ""


def body(prediction: Prediction, rows: Sequence[int]) -> dict[str, list[str]]:
    """The cells of some rows by column, the rows' labels first."""
    columns = prediction.columns()
    labels = prediction.labels
    cells = {"": [_text(row if labels is None else labels[row]) for row in rows]}
    if prediction.classes is not None:
        if prediction.probabilities is not None and len(prediction.classes) > MAX_CLASSES:
            likeliest = {"prediction": columns["prediction"], "probability": prediction.probabilities.max(axis=1)}
            columns = likeliest | {name: columns[name] for name in AFTER_CLASSES if name in columns}
        cells |= {name: [_class_cell(column[row]) for row in rows] for name, column in columns.items()}
        return cells
    unit = [name for name in columns if not name.startswith("exceedance_")]
    decimals = _decimals(prediction, rows)
    for name, column in columns.items():
        digits = decimals if name in unit else 3
        cells[name] = [_fixed(float(column[row]), digits) for row in rows]
    return cells


def text_table(prediction: Prediction) -> str:
    """The prediction as lines of text."""
    rows = shown_rows(prediction)
    cells = body(prediction, rows)
    lines = [[name, *column] for name, column in cells.items()]
    if len(rows) < len(prediction):
        for column in lines:
            column.insert(1 + len(rows) // 2, "…")
    widths = [max(map(len, column)) for column in lines]
    table = [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in zip(*lines, strict=True)
    ]
    listed = [f"  {warning}" for warning in prediction.warnings[:MAX_WARNINGS]]
    note = [warnings_line(prediction), *listed] if listed else []
    return "\n".join([title(prediction), *table, *note])


def _decimals(prediction: Prediction, rows: Sequence[int]) -> int | None:
    """Decimals that give the typical std two significant digits; None for numbers that need powers of ten."""
    spread = prediction.std if prediction.std is not None else np.abs(prediction.mean) / 100
    sizes = spread[list(rows)]
    sizes = sizes[sizes > 0]
    if not len(sizes):
        return 3
    decimals = 1 - int(np.floor(np.log10(np.median(sizes))))
    largest = float(np.abs(prediction.mean[list(rows)]).max())
    return max(decimals, 0) if decimals <= 6 and largest < 1e9 else None


def _fixed(value: float, decimals: int | None) -> str:
    return f"{value:.4g}" if decimals is None else f"{value:.{decimals}f}"


def _class_cell(value: Any) -> str:
    if isinstance(value, list):
        return _text(", ".join(value))
    return _text(value) if isinstance(value, str) else f"{value:.3f}"


def _text(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
