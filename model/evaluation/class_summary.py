"""Held-out metrics of a classifier as a few lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.evaluation.metrics import basis_lines, plus_minus

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["class_summary", "per_cent"]


NEAR = "(near 90 % by construction: murho evaluate on rows kept aside tells more)"
NEVER_EMPTY = "(a set is never empty, and the likeliest class alone is right more often than 90 %)"


def class_summary(scores: Mapping[str, Any]) -> list[str]:
    """Held-out metrics of a classifier as a few lines, each of at most 80 characters.

    Args:
        scores: The ``metrics`` of a checkpoint, as `model.evaluation.class_held_out.calibrate_classes` returns them.
    """
    errors = scores.get("standard_errors", {})
    auc = "" if scores.get("auc") is None else f"   AUC {scores['auc']:.3f}"
    first = (
        f"log loss {plus_minus(scores['log_loss'], errors.get('log_loss'))} nats   "
        f"accuracy {per_cent(scores['accuracy'], errors.get('accuracy'))}{auc}"
    )
    if not scores.get("calibrated"):
        return [first, "probabilities are raw: too few rows to calibrate them", *basis_lines(scores)]
    raw, sets = scores["raw"], scores["sets"]
    return [
        first,
        f"calibration error {per_cent(scores['ece'])} (raw {per_cent(raw['ece'])}, raw log loss {raw['log_loss']:.4g})",
        f"90 % sets hold the class of {per_cent(sets['coverage']['90'])} of the rows; {sets['size']['90']:.2f} classes "
        "on average",
        *basis_lines(scores),
        NEVER_EMPTY if scores["accuracy"] > 0.9 else NEAR,
    ]


def per_cent(share: float, error: float | None = None) -> str:
    """``98.8 ± 0.6 %``: a share and, if it is known and not 0, its standard error."""
    return f"{plus_minus(100.0 * share, 100.0 * error)} %" if error else f"{100.0 * share:.1f} %"
