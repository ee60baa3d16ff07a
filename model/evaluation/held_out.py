"""Calibration of a fit on held-out rows, and the estimate of what will be served, made crosswise.

Answers mix all M members, but only J of them, the judges, have not seen a held-out row. Scores are those of the judges'
mixture, and so a little too cautious: all members predict better. What is served narrows the normal scores of numbers
by what the other members add: their mean size falls with the number m of members about as ``a + b / m``, because the
errors of single members average out, and their disagreement widens the mixture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from murho.model.arrays import Array, Bools, Doubles, Ints, with_arrays
from murho.model.bbb.fit_rows import ensemble_score
from murho.model.calibration.abstention import HeldOutClasses
from murho.model.calibration.class_calibration import (
    Calibration,
    ClassCalibration,
    ClassMap,
    PredictionSets,
    fit_class_map,
    fit_prediction_sets,
)
from murho.model.calibration.conformal import CROSS, FORWARD, POOLED, SPLIT, ConformalMap, fit_conformal_map
from murho.model.checkpoint.posterior import Posterior
from murho.model.distributions.class_predictive import ClassPredictive
from murho.model.encoding.encoder import Encoded
from murho.model.evaluation.class_scores import JudgedClasses
from murho.model.evaluation.judged_rows import JudgedRows, RowWeights
from murho.model.evaluation.judging import in_passes
from murho.model.evaluation.number_scores import JudgedNumbers, numbers_of
from murho.model.predictive.plans import ClassTargetModel, DrawnRows, TargetModel, served_probabilities
from murho.model.runtime import trim_heap
from murho.model.tables.splits import HeldOut

Raw = Mapping[str, Array]

SAMPLES = 128
"""Draws per held-out row, shared by its judges. The time of the CRPS of mixtures grows with their square."""
PARTS = 5
"""Parts of the held-out rows, each of whole groups: what one is scored with is made of the other ones."""
NARROWEST, FURTHEST_SCORE = 0.5, 3.0
"""Least factor of normal scores, and the largest size that counts in it: a larger one marks an odd row."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What held-out rows say of a fit.

    Attributes:
        conformal: The map to calibrated bands or, of a classifier, to calibrated probabilities; None: there is none.
        metrics: The estimate of what is served, as `calibrate_held_out` describes it.
        held_out: The rows, judged by the answers of their judges.
    """

    conformal: Calibration | None
    metrics: dict[str, Any]
    held_out: JudgedRows


def calibrate_held_out(
    posterior: Posterior,
    encoded: Encoded,
    targets: Doubles,
    groups: Sequence[HeldOut],
    *,
    calibrating: Sequence[int],
    weights: Doubles | None = None,
    units: NDArray[np.generic] | None = None,
    even: bool = False,
    forward: bool = False,
    earlier: Calibration | None = None,
) -> Calibrated:
    """Return the calibration of held-out rows, and an estimate of what will be served.

    What each of five parts of the rows is scored with is made of the other ones, so nothing is fitted to the very rows
    that it is scored on. Even so the coverage of calibrated bands is about the nominal one by construction. It can show
    whether bands made of some groups hold for the others (where groups differ, it is too low), and its standard error
    by how much the coverage of fresh rows may be off by chance. Without a calibration of these rows they are scored
    with that of the posterior, if it has one.

    Args:
        posterior: The fit.
        encoded: All rows of the table.
        targets: Their targets, ``[N]``, the target's unit, or numbers of their classes.
        groups: Held-out rows, each with the members that have not seen them.
        calibrating: Numbers of the groups that make the calibration; empty for none.
        weights: Relative weights of all rows, ``[N]``; None: all count alike.
        units: Id of each row's exchangeable unit, ``[N]``: rows of one unit are not independent. None: each row is one.
        even: Whether every unit counts the same in the map of a number, whatever its number of rows: for a new row of a
            new unit. Rows of classes count as they are: thresholds take the units into account by themselves.
        forward: Whether judges have learned from earlier rows only. Nothing is narrowed then: the judges of a row have
            learned from the same rows, and agree more than any two members.
        earlier: A calibration of other rows, with which these are pooled (`model.calibration`); None: there is none.

    Returns:
        The calibration, or None, the judged rows, and the metrics: their `JudgedRows.report`, with ``members``, the
        number of judges of a row, and ``all_members``.
    """
    members, of_classes = posterior.architecture.members, posterior.schema.target.classes is not None
    judges = min(members if group.members is None else len(group.members) for group in groups)
    numbers = np.repeat(np.arange(len(groups)), [len(group.rows) for group in groups])
    rows, places = np.concatenate([group.rows for group in groups]), np.arange(len(groups)) * PARTS
    of_groups = places // max(PARTS, len(groups))
    counts = RowWeights.of(
        len(rows), None if weights is None else weights[rows], None if units is None else units[rows]
    )

    def judge(made: Callable[[DrawnRows, Ints, int], Made]) -> Made:
        """Return what is made of the rows under draws of their judges, pass by pass."""
        parts = []
        for group, part in zip(groups, of_groups.tolist(), strict=True):
            if len(group.rows):

                def judge_pass(drawn: DrawnRows, some: slice, group: HeldOut = group, part: int = part) -> Made:
                    return made(drawn, group.rows[some], part)

                parts.append(
                    in_passes(posterior, encoded[group.rows], judge_pass, samples=SAMPLES, members=group.members)
                )
        trim_heap()
        return with_arrays(np.concatenate, parts)

    calibration: Calibration | None = None
    of_parts: Mapping[int, Calibration] = {}
    calibrating_rows = np.isin(numbers, list(calibrating))
    if calibrating_rows.any():
        method = FORWARD if forward else SPLIT if all(group.members is None for group in groups) else CROSS
        fitting = _Fitting(
            counts, calibrating_rows, of_groups[numbers], method if earlier is None else POOLED, even, earlier
        )
        if of_classes:
            raw = judge(lambda drawn, own, _: _raw_classes(drawn, targets[own]))
            calibration, of_parts = _calibrate_classes(raw, encoded.outlier[rows], posterior, fitting)
        else:
            raw = judge(lambda drawn, own, _: _raw_numbers(drawn, targets[own]))
            every = raw["sizes"] if forward else ensemble_score(raw["alone"], raw["sizes"], judges, members)
            narrowing = np.clip(counts.mean(every) / counts.mean(raw["sizes"]), NARROWEST, 1.0)
            calibration, of_parts = _calibrate_numbers(raw["scores"], float(narrowing), fitting)
    of_kind: Any = JudgedClasses if of_classes else JudgedNumbers
    judged: JudgedRows = judge(
        lambda drawn, own, part: of_kind.of(drawn, own, targets[own], of_parts.get(part, posterior.calibration))
    )
    judged = replace(judged, weights=counts)
    return Calibrated(calibration, judged.report() | {"members": judges, "all_members": members}, judged)


Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class _Fitting:
    """How calibrations are made of n held-out rows.

    Attributes:
        weights: Weights and units of the rows.
        calibrating: Mask of the rows that make the calibration.
        parts: Number of each row's part, ``[n]``.
        method: Name of the guarantee that bands and sets have (`model.calibration.conformal`).
        even: Whether units count the same.
        earlier: A calibration to pool with.
    """

    weights: RowWeights
    calibrating: Bools
    parts: Ints
    method: str
    even: bool
    earlier: Any

    def crosswise(self, fit: Callable[[Bools], Made]) -> dict[int, Made]:
        """Part → what is fitted to the rows of the others; where there is only one part, to its own."""
        parts = np.unique(self.parts).tolist()
        return {part: fit((self.parts != part) | (len(parts) == 1)) for part in parts}


def _raw_numbers(drawn: DrawnRows, targets: Doubles) -> Raw:
    """Return normal scores of targets ``[B]``, their sizes, and the mean size under one judge alone."""
    target, truth = cast("TargetModel", drawn.target), torch.from_numpy(targets).to(drawn.outputs.device).unsqueeze(0)

    def scores(draws: Tensor) -> Doubles:
        return numbers_of(target.predictive(drawn.outputs[draws], drawn.members[draws]).normal_score(truth)[0])

    together = scores(drawn.members >= 0)
    alone = [np.abs(scores(drawn.members == judge)).clip(max=FURTHEST_SCORE) for judge in drawn.members.unique()]
    return {
        "scores": together,
        "sizes": np.abs(together).clip(max=FURTHEST_SCORE),
        "alone": np.mean(alone, axis=0),
    }


def _calibrate_numbers(
    scores: Doubles, narrowing: float, fitting: _Fitting
) -> tuple[ConformalMap | None, dict[int, ConformalMap]]:
    """Return the map for all members, of narrowed scores ``[n]``, and each part's from the others; None: few rows."""

    def fit(chosen: Bools, narrowing: float = 1.0) -> ConformalMap | None:
        counts = fitting.weights.of_rows(chosen)
        weights = counts.amounts if counts.weighted or fitting.even else None
        if weights is not None and fitting.even:
            weights = weights / np.bincount(counts.units)[counts.units]
        units = counts.count if counts.grouped else None
        return fit_conformal_map(
            narrowing * scores[chosen], method=fitting.method, weights=weights, units=units, earlier=fitting.earlier
        )

    conformal = fit(fitting.calibrating, narrowing)
    if conformal is None:
        return None, {}
    return conformal, {part: of_others or conformal for part, of_others in fitting.crosswise(fit).items()}


def _raw_classes(drawn: DrawnRows, targets: Doubles) -> Raw:
    """Raw answers for rows of classes, whose numbers are the targets ``[B]``."""
    predictive = cast("ClassPredictive", drawn.predictive())
    return {
        "labels": targets.astype(np.int64),
        "probabilities": numbers_of(predictive.pool()),
        "epistemic_share": numbers_of(predictive.epistemic_share()),
        "outside": numbers_of(drawn.only_widen),
    }


def _calibrate_classes(
    raw: Raw, outlier: Bools, posterior: Posterior, fitting: _Fitting
) -> tuple[ClassCalibration, dict[int, ClassCalibration]]:
    """Return the map and sets of the rows, and for each part those of the others.

    Args:
        raw: What `_raw_classes` returns of all n rows.
        outlier: Whether each is unlike the training rows, ``[n]``.
        posterior: The fit.
        fitting: See there.
    """
    probabilities, share, outside, labels = (
        torch.from_numpy(raw[name]) for name in ("probabilities", "epistemic_share", "outside", "labels")
    )
    earlier: ClassCalibration | None = fitting.earlier
    shares = cast("ClassTargetModel", posterior.target).shares.cpu()

    def counts_of(rows: Bools) -> dict[str, Any]:
        counts = fitting.weights.of_rows(rows)
        return {
            "weights": torch.from_numpy(counts.amounts) if counts.weighted else None,
            "units": counts.units if counts.grouped else None,
        }

    def answer(rows: Bools, mapped: ClassMap) -> Tensor:
        return served_probabilities(probabilities[rows], mapped, shares, outside[rows], lambda: share[rows])

    def fit_map(rows: Bools) -> ClassMap:
        return fit_class_map(
            probabilities[rows].log(),
            labels[rows],
            **counts_of(rows),
            earlier=None if earlier is None else earlier.map,
            earlier_rows=0 if earlier is None else earlier.rows,
        )

    def fit_sets(rows: Bools) -> PredictionSets:
        sets = None if earlier is None else earlier.sets
        return fit_prediction_sets(served[rows], labels[rows], **counts_of(rows), method=fitting.method, earlier=sets)

    maps, served, chosen = fitting.crosswise(fit_map), torch.empty_like(probabilities), fitting.calibrating
    for part, mapped in maps.items():
        inside = fitting.parts == part
        served[inside] = answer(inside, mapped)
    evidence = HeldOutClasses.of(
        numbers_of(served)[chosen],
        raw["labels"][chosen],
        outlier[chosen],
        fitting.weights.units[chosen],
        None if earlier is None else earlier.held_out,
    )
    of_parts = {part: ClassCalibration(maps[part], sets) for part, sets in fitting.crosswise(fit_sets).items()}
    return ClassCalibration(fit_map(chosen), fit_sets(chosen), evidence), of_parts
