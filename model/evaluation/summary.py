"""Held-out metrics as a few lines for people, and numbers with their standard errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

NEAR = "(close to 90 % by design: test on unseen rows with murho evaluate)"
EXACT = 0.002
"""Share of the constant answer's CRPS below which the floor of the noise makes much of the raw bands."""
AT_THE_FLOOR = "(nearly exact: learned noise is at least 0.1 % of the std that a line leaves)"
NEVER_EMPTY = "(a set is never empty, and the likeliest class alone is right more often than 90 %)"


def summary(scores: Mapping[str, Any], unit: str | None) -> list[str]:
    """Held-out metrics as a few lines for people, each of at most 80 characters if the unit is short.

    The `verdict` comes first. What describes the answers that are served comes alone: the scores of raw bands, of other
    levels are in the report and in ``model.json``.

    Args:
        scores: The ``metrics`` of a checkpoint.
        unit: The target's unit, if known.
    """
    lines = _of_classes(scores) if "log_loss" in scores else _of_numbers(scores, f" {unit}" if unit else "")
    return [f"verdict: {verdict(scores, unit)}", *lines]


GOOD, SOME = 0.5, 0.2
"""Least share of the constant answer's score that a model saves to predict well, or in part."""


def verdict(scores: Mapping[str, Any], unit: str | None) -> str:
    """How much better the answers are than one answer for all rows, as one line for people.

    Args:
        scores: The ``metrics`` of a checkpoint, or an evaluation.
        unit: The target's unit, if known.
    """
    if not scores.get("held_out", True):
        return f"not known: judged on its own {scores['n']} training rows, as there are too few to hold any out"
    key, title = ("log_loss", "log loss") if "log_loss" in scores else ("crps", "CRPS")
    constant, error = (scores.get("constant") or {}).get(key), scores["standard_errors"][key]
    if not constant or error is None:
        return "not known: there is too little to compare with"
    suffix = " nats" if key == "log_loss" else f" {unit}" if unit else ""
    gain, doubt = 1.0 - scores[key] / constant, 2.0 * error / constant
    score, without = f"{title} {significant(scores[key], 3)}{suffix}", significant(constant, 3)
    explained = "" if scores.get("r2") is None else f"; R² {scores['r2']:.3f}"
    if trees := scores.get("trees"):
        rmse, less = significant(scores["rmse"], 3), significant(trees["rmse"], 3)
        explained += f"; boosted trees predict better: RMSE {less} against {rmse}"
    if gain <= doubt:
        what = "does not predict" if gain <= 0.0 else "not surely better than ignoring the features"
        return f"{what}: {score}, ignoring the features {without}{explained}"
    what = "predicts well" if gain >= GOOD else "predicts in part" if gain >= SOME else "predicts little"
    return f"{what}: {score}, {per_cent(gain)} lower than ignoring the features ({without}){explained}"


def _of_numbers(scores: Mapping[str, Any], suffix: str) -> list[str]:
    errors, kind = scores["standard_errors"], "calibrated" if scores["calibrated"] else "raw"
    raw = f" (raw {significant(scores['raw']['crps'], 3)})" if scores["calibrated"] else ""
    rmse, crps = (f"{plus_minus(scores[key], errors[key])}{suffix}" for key in ("rmse", "crps"))
    shown = [f"RMSE {rmse}", f"CRPS {crps}{raw}", f"raw NLL {significant(scores['nll'], 3)} nats"]
    covered = per_cent(scores[kind]["coverage"]["90"], errors[kind]["coverage"]["90"])
    named = "90 % bands" + ("" if scores["calibrated"] else " (raw: too few rows to calibrate)")
    wide = f"{significant(scores[kind]['width']['90'])}{suffix} wide on average"
    near = [NEAR] if scores["calibrated"] else []
    if scores["raw"]["crps"] < EXACT * ((scores.get("constant") or {}).get("crps") or 0.0):
        near.append(AT_THE_FLOOR)
    return ["   ".join(shown), f"{named} cover {covered} of them, {wide}", *_basis(scores), *near]


def _of_classes(scores: Mapping[str, Any]) -> list[str]:
    errors = scores["standard_errors"]
    auc = "" if scores["auc"] is None else f"   AUC {scores['auc']:.3f}"
    first = (
        f"log loss {plus_minus(scores['log_loss'], errors['log_loss'])} nats   "
        f"accuracy {per_cent(scores['accuracy'], errors['accuracy'])} "
        f"({per_cent(scores['constant']['accuracy'])} are of one class){auc}"
    )
    if not scores["calibrated"]:
        return [first, "probabilities are raw: too few rows to calibrate them", *_basis(scores)]
    raw, sets = scores["raw"], scores["sets"]
    return [
        first,
        f"calibration error {per_cent(scores['ece'])} (raw {per_cent(raw['ece'])}, raw log loss {raw['log_loss']:.4g})",
        f"90 % sets hold the class of {per_cent(sets['coverage']['90'])} of the rows; {sets['size']['90']:.2f} classes "
        "on average",
        *_basis(scores),
        NEVER_EMPTY if scores["accuracy"] > 0.9 else NEAR,
    ]


def _basis(scores: Mapping[str, Any]) -> list[str]:
    """Which members the scores are of, as lines for people; none if these are all."""
    judges, members = scores["members"], scores["all_members"]
    whose = "one network that has" if judges == 1 else f"the {judges} members that have"
    return [f"(scores of {whose} not seen the row; all {members} together do better)"] if judges < members else []


def significant(value: float, digits: int = 4) -> str:
    """``1,230,000``: a number with so many significant digits, and thousands parted."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if rounded.is_integer() and 1e3 <= abs(rounded) < 1e15 else f"{rounded:.{digits}g}"


def plus_minus(value: float, error: float | None) -> str:
    """``2.69 ± 0.11``: a value and its standard error, of which two digits are shown; four of the value without it."""
    if error is None or not (np.isfinite(error) and error > 0.0):
        return significant(value)
    decimals = 1 - int(np.floor(np.log10(error)))
    value, error = round(value, decimals), round(error, decimals)
    return f"{value:,.{max(0, decimals)}f} ± {error:,.{max(0, decimals)}f}"


def per_cent(share: float, error: float | None = None) -> str:
    """``98.8 ± 0.6 %``: a share and, if it is known and not 0, its standard error."""
    return f"{plus_minus(100.0 * share, 100.0 * error)} %" if error else f"{100.0 * share:.1f} %"
