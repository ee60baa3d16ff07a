"""The facts of a version that `murho update` or `murho prune` made: those of the version before, and what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.fitting.training_data import select_rows
from murho.model.report.doubt_facts import doubt_facts
from murho.model.report.facts import facts_of_spec, plain
from murho.model.report.held_out_facts import held_out_facts
from murho.model.report.training_facts import curve_points

if TYPE_CHECKING:
    from collections.abc import Mapping

    from murho.model.evaluation.class_held_out import HeldOutClasses
    from murho.model.evaluation.held_out_rows import HeldOutRows
    from murho.model.posterior.model_spec import ModelSpec
    from murho.model.posterior.posterior import Posterior
    from murho.model.revision.pruning import Pruned
    from murho.model.revision.revisions import LabelledRows
    from murho.model.revision.updating import Updated

__all__ = ["PRUNING", "UPDATE", "facts_of_pruning", "facts_of_update"]

UPDATE, PRUNING = "update", "pruning"


def facts_of_update(updated: Updated, rows: LabelledRows, before: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of an updated version.

    Args:
        updated: The outcome.
        rows: The new rows.
        before: The facts of the version that it was made from (`model.report.facts.report_facts`).

    Returns:
        The facts of a report. Table, target and candidates are those of the training. The curves go on with the fit of
        the update. Held-out rows and doubt are those of the new rows; without held-out ones, the scores are those of
        the version before. ``revision`` has ``kind``, what ``model.json`` says of the update, and the full ``scores``
        of both versions on the new rows.
    """
    spec = updated.revision.spec
    record = spec.records["update"]
    fit = {"stage": UPDATE, **curve_points(updated.history)} if updated.history else None
    curves = [*(before["training"]["curves"] or []), *([] if fit is None else [fit])]
    return facts_of_spec(spec, updated.revision.tensors) | plain(
        {
            **_unchanged(before),
            "table": {**before["table"], "rows": record["total_rows"]},
            "training": {**before["training"], "curves": curves or None, "calibration_rows": _calibrated(spec)},
            **_judged(updated.revision.posterior, rows, updated.judged if updated.held_out else None),
            **({"scores": updated.after} if updated.held_out else {}),
            "revision": {"kind": UPDATE, **record, "scores": {"before": updated.before, "after": updated.after}},
        }
    )


def facts_of_pruning(pruned: Pruned, rows: LabelledRows | None, before: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a pruned version.

    Args:
        pruned: The outcome.
        rows: The labelled rows that it was judged by; None: there were none.
        before: The facts of the version that it was made from (`model.report.facts.report_facts`).

    Returns:
        The facts of a report, as `facts_of_update` has them. Without rows there are neither scores nor held-out rows:
        those of the whole network are not true of this one. ``revision`` has the histogram of the weights.
    """
    spec = pruned.revision.spec
    record = spec.records["pruning"]
    judged = {"held_out": None, "doubt": None}
    if rows is not None:
        judged = _judged(pruned.revision.posterior, rows, pruned.judged)
    scores = None if pruned.before is None else {"before": pruned.before, "after": pruned.after}
    return facts_of_spec(spec) | plain(
        {**_unchanged(before), **judged, "revision": {"kind": PRUNING, **record, "scores": scores}}
    )


def _calibrated(spec: ModelSpec) -> int | None:
    return None if spec.calibration is None else spec.calibration.rows


def _unchanged(before: Mapping[str, Any]) -> dict[str, Any]:
    return {key: before[key] for key in ("target", "table", "training")}


def _judged(posterior: Posterior, rows: LabelledRows, judged: HeldOutRows | HeldOutClasses | None) -> dict[str, Any]:
    """What labelled rows say: of the predictions, where they were judged, and of doubt."""
    held_out = None
    if judged is not None:
        held_out = held_out_facts(judged, posterior.schema, select_rows(rows.columns, judged.rows))
    return {"held_out": held_out, "doubt": doubt_facts(posterior, rows.columns)}
