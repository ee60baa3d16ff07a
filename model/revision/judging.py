"""Scores of a revised version, and of the one before it, on labelled rows: of numbers, and of classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from murho.model.training.tasks import task_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murho.model.data.splits import HeldOut
    from murho.model.evaluation.cross_calibration import Calibrated
    from murho.model.posterior.posterior import Posterior
    from murho.model.revision.revisions import LabelledRows

__all__ = ["judge", "score_facts"]

OF_NUMBERS = ("nll", "crps", "rmse")
OF_CLASSES = ("log_loss", "accuracy", "brier")


def judge(
    posterior: Posterior,
    rows: LabelledRows,
    groups: Sequence[HeldOut],
    *,
    calibrating: Sequence[int] = (),
    **options: Any,
) -> Calibrated:
    """A calibration made of labelled rows, scores on them, and the predictions for them.

    NLL, CRPS and RMSE of a number are those of the raw predictive. Log loss, accuracy and Brier score of a class are of
    the probabilities that answers give: with the version's own calibration, unless the rows make another one.

    Args:
        posterior: The version.
        rows: The labelled rows.
        groups: Which of them are judged, and by which members.
        calibrating: Numbers of the groups that calibrate; empty for no calibration.
        options: See `model.evaluation.cross_calibration.calibrate_held_out`.
    """
    target = posterior.schema.target
    if target.classes is not None:
        options["kept"] = posterior.calibration
    return task_of(target).calibrate(posterior, rows.encoded, rows.targets, groups, calibrating=calibrating, **options)


def score_facts(report: dict[str, Any]) -> dict[str, float]:
    """The scores that ``model.json`` keeps of a revision."""
    return {name: report[name] for name in (OF_CLASSES if "log_loss" in report else OF_NUMBERS)}
