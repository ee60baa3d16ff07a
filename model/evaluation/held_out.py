"""Calibration of a fit on held-out rows, and the estimate of what will be served, made crosswise.

Answers mix all M members, but only J of them, the judges, have not seen a held-out row, and more members predict
better. For classes the pooled probabilities of the judges stand for those of all: the estimate is a little too
cautious. For numbers each row's score under one judge and under all its judges gives its score under M members
(`model.bbb.fit_rows`): CRPS, squared error and variance exactly in expectation, absolute error and NLL nearly. For
bands there is no such law, so the answer of all members is emulated from that of the judges:

- The normal score of the target is the judges' times the *narrowing*, the ratio of the mean sizes of normal scores
  under M and under J members. The target is inside a band if that score is.
- The distance of a percentile from the median is the judges' times the ratio of the two standard deviations of the
  row, under M and J members.

Where all members are judges, or only one is, nothing is extrapolated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast

import numpy as np
import torch

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
from murho.model.distributions.mixtures import normal_cdf
from murho.model.distributions.sums import LEAST
from murho.model.evaluation.class_scores import SET_COVERAGES, JudgedClasses, prediction_sets
from murho.model.evaluation.judged_rows import JudgedRows, RowArrays, RowWeights
from murho.model.evaluation.judging import in_passes
from murho.model.evaluation.number_scores import (
    BAND_LEVELS,
    GRID_LEVELS,
    Bands,
    JudgedNumbers,
    numbers_of,
    percentiles_at,
    ratio_of_crps,
    row_scores,
)
from murho.model.predictive.plans import TargetModel, served_probabilities
from murho.model.runtime import trim_heap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.arrays import Bools, Doubles, Ints
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.distributions.class_predictive import ClassPredictive
    from murho.model.encoding.encoder import Encoded
    from murho.model.predictive.plans import DrawnRows
    from murho.model.tables.splits import HeldOut

SAMPLES = 128
"""Draws per held-out row, shared by its judges. The time of the CRPS of mixtures grows with their square."""
PARTS = 5
"""Parts of the held-out rows, each of whole groups: what one is scored with is made of the other ones."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What held-out rows say of a fit.

    Attributes:
        conformal: The map to calibrated bands or, of a classifier, to calibrated probabilities; None: there is none.
        metrics: The estimate of what is served, as `calibrate_held_out` describes it.
        held_out: The rows, judged as their judges' answers let one expect.
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
    """The calibration of held-out rows, and an estimate of what will be served.

    What each of five parts of the rows is scored with is made of the other ones, so nothing is fitted to the very rows
    that it is scored on. Even so the coverage of calibrated bands is about the nominal one by construction: the map
    makes it so, and the narrowing of scores and that of bands cancel. It can show whether bands made of some groups
    hold for the others (where groups differ, it is too low), and its standard error by how much the coverage of fresh
    rows may be off by chance. It can't show whether the narrowing is right. Without a calibration of these rows they
    are scored with that of the posterior, if it has one.

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
        forward: Whether judges have learned from earlier rows only. Scores and bands of a number then don't count on
            what the other members add: the judges of a row have learned from the same rows, and agree more than any two
            members. Probabilities are never extrapolated.
        earlier: A calibration of other rows, with which these are pooled (`model.calibration`); None: there is none.

    Returns:
        The calibration, or None, the judged rows, and the metrics: their `JudgedRows.report`, with ``members``, the
        number of members that all this describes, and ``all_members``. If these are more than a row's judges,
        ``judges`` has the judges' own report, with their number as ``members``.
    """
    rows = np.concatenate([group.rows for group in groups])
    members = posterior.architecture.members
    judges = min(members if group.members is None else len(group.members) for group in groups)
    of_classes = posterior.schema.target.classes is not None
    described = members if not forward and judges > 1 and not of_classes else judges
    of_kind = ClassesByJudges if of_classes else NumbersByJudges
    parts: list[Any] = []
    for group in groups:
        if len(group.rows):

            def judge(drawn: DrawnRows, places: slice, group: HeldOut = group) -> Any:
                return of_kind.of(drawn, group.rows[places], targets, group.members, described)

            parts.append(in_passes(posterior, encoded[group.rows], judge, samples=SAMPLES, members=group.members))
    trim_heap()
    of_groups = np.repeat(np.arange(len(groups)), [len(group.rows) for group in groups])
    of_parts = of_groups * PARTS // max(PARTS, len(groups))
    fitting = _Fitting(
        weights=RowWeights.of(
            len(rows), None if weights is None else weights[rows], None if units is None else units[rows]
        ),
        calibrating=np.isin(of_groups, list(calibrating)),
        insides=[of_parts == part for part in np.unique(of_parts)],
        method=FORWARD if forward else SPLIT if all(group.members is None for group in groups) else CROSS,
        even=even,
        outlier=encoded.outlier[rows],
        own=posterior.calibration,
        earlier=earlier,
    )
    held = parts[0].joined(parts)
    conformal, judged = held.calibrated(fitting)
    judged = replace(judged, weights=fitting.weights)
    metrics = judged.report() | {"members": described, "all_members": members}
    if judges < described:
        metrics["judges"] = replace(held.together, weights=fitting.weights).report() | {"members": judges}
    return Calibrated(conformal, metrics, judged)


Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class _Fitting(Generic[Kind]):
    """How calibrations are made of n held-out rows.

    Attributes:
        weights: Weights and units of the rows.
        calibrating: Mask of the rows that make the calibration; nowhere: there is to be none.
        insides: Masks of parts; what the rows of one are scored with is made of the others.
        method: Name of the guarantee that bands and sets have (`model.calibration.conformal`).
        even: Whether units count the same.
        outlier: Whether each row is unlike the training rows, ``[n]``.
        own: The posterior's calibration, for rows that make none.
        earlier: A calibration to pool with.
    """

    weights: RowWeights
    calibrating: Bools
    insides: list[Bools]
    method: str
    even: bool
    outlier: Bools
    own: Kind | None
    earlier: Kind | None

    def crosswise(self, fit: Callable[[Bools], Any]) -> list[tuple[Bools, Any]]:
        """Masks of parts, each with what is fitted to the others; where there is one part alone, to itself."""
        return [(inside, fit(~inside if len(self.insides) > 1 else inside)) for inside in self.insides]


NARROWEST = 0.5
"""Least narrowing."""
BAND_SCORES = torch.special.ndtri(torch.tensor(BAND_LEVELS, dtype=torch.float64) / 100.0)
"""Normal scores of the ends of the bands, ``[8]``."""


@dataclass(frozen=True, slots=True)
class NumbersByJudges(RowArrays):
    """n held-out rows of a target that is a number, under their judges.

    Attributes:
        together: The rows, judged by the raw answers of the mixture of the judges.
        alone: The mean over judges of the scores under each alone, ``[n]``: those of
            `model.evaluation.number_scores.row_scores`, and ``reach``, the size of the normal score, at most 3.
        scores: Normal score of the target under the mixture of the judges, ``[n]``.
        percentiles: Raw percentiles of that mixture at `GRID`, ``[n, K]``, the target's unit.
        outside: Whether the row lies beyond the training rows, bool ``[n]``.
        judges: J, the number of members that judge the row together, ``[n]``.
        members: M, the number of members that are to be described.
    """

    together: JudgedNumbers
    alone: dict[str, Doubles]
    scores: Doubles
    percentiles: Doubles
    outside: Bools
    judges: Ints
    members: int

    @classmethod
    def of(
        cls,
        drawn: DrawnRows,
        rows: Ints,
        targets: Doubles,
        judges: Sequence[int] | None,
        members: int,
    ) -> Self:
        """Judge B rows under draws of their judges.

        Args:
            drawn: The rows.
            rows: Their numbers in the table, ``[B]``.
            targets: Of all rows of the table, ``[N]``.
            judges: The members that have not seen the rows; None: all.
            members: M.
        """
        target = cast("TargetModel", drawn.target)
        predictive = target.predictive(drawn.outputs, drawn.members)
        truth = torch.from_numpy(targets[rows]).to(drawn.outputs.device)
        together = JudgedNumbers.of(drawn, rows, targets[rows], None)
        alone, count = together.values, members if judges is None else len(judges)
        if judges is not None and count < members:
            # The draws of one judge are some of the draws of all, so no row goes through the network twice.
            chosen = [drawn.members == judge for judge in judges]
            singles = [row_scores(target.predictive(drawn.outputs[own], drawn.members[own]), truth) for own in chosen]
            alone = {name: np.mean([single[name] for single in singles], axis=0) for name in alone}
        return cls(
            together=together,
            alone=alone,
            scores=numbers_of(predictive.normal_score(truth.unsqueeze(0))[0]),
            percentiles=drawn.observation(GRID_LEVELS)["percentiles"],
            outside=numbers_of(drawn.widening),
            judges=np.full(len(rows), count),
            members=members,
        )

    def extrapolated(self) -> dict[str, Doubles]:
        """Scores of every row under all M members, by the names of `alone`, ``[n]`` each."""
        values = {name: together.copy() for name, together in self.together.values.items()}
        for count in np.unique(self.judges):
            rows = self.judges == count
            for name, of in values.items():
                of[rows] = ensemble_score(self.alone[name][rows], of[rows], int(count), self.members)
        return values

    def narrowing(self, weights: RowWeights) -> float | None:
        """The narrowing: the factor by which normal scores shrink where all members answer and not only the judges.

        The mean size of normal scores falls with the number m of members about as ``a + b / m``: the errors of single
        members average out, and their disagreement widens the mixture.

        Returns:
            The factor, from 0.5 to 1; None where nothing is extrapolated.
        """
        if self.judges.min() == self.members:
            return None
        every, some = self.extrapolated()["reach"], self.together.values["reach"]
        return float(np.clip(weights.mean(every) / weights.mean(some), NARROWEST, 1.0))

    def calibrated(self, fitting: _Fitting[ConformalMap]) -> tuple[ConformalMap | None, JudgedNumbers]:
        """The calibration, if there is to be one, and the rows as all M members would answer."""

        def fit(chosen: Bools) -> ConformalMap | None:
            """The map of the rows of a mask ``[n]``, with their own narrowing; None where they are too few."""
            counts, scores = fitting.weights.of_rows(chosen), self.scores[chosen]
            # With one judge a row nothing tells what the other members add.
            narrowing = self.of_rows(chosen).narrowing(counts) or (None if fitting.method == SPLIT else 1.0)
            weights = counts.amounts if counts.weighted or fitting.even else None
            if weights is not None and fitting.even:
                weights = weights / np.bincount(counts.units)[counts.units]
            units = counts.count if counts.grouped else None
            return fit_conformal_map(
                scores,
                method=fitting.method if fitting.earlier is None else POOLED,
                narrowing=narrowing,
                weights=weights,
                units=units,
                earlier=fitting.earlier,
            )

        conformal = fit(fitting.calibrating) if fitting.calibrating.any() else None
        maps = [] if fitting.own is None else [(np.ones(len(self.scores), dtype=bool), fitting.own)]
        if conformal is not None:
            maps = [(inside, of_others or conformal) for inside, of_others in fitting.crosswise(fit)]
        narrowing = self.narrowing(fitting.weights)
        bands = {"raw": self.emulated(narrowing, [])} | ({"calibrated": self.emulated(narrowing, maps)} if maps else {})
        return conformal, replace(self.together, values=self.extrapolated(), bands=bands)

    def emulated(self, narrowing: float | None, maps: Sequence[tuple[Bools, ConformalMap]]) -> Bands:
        """The answer of all members, emulated from that of the judges.

        Args:
            narrowing: Factor of the normal scores; None: the judges' own answer.
            maps: Rows, and the calibration of their bands; none: they are raw.
        """
        scores, own = (narrowing or 1.0) * self.scores, self.together.values["variance"]
        std = np.sqrt(own if narrowing is None else np.maximum(self.extrapolated()["variance"], 0.0))
        crps = (self.together.values if narrowing is None else self.extrapolated())["crps"].copy()
        targets = self.together.targets
        if narrowing is not None:
            targets = percentiles_at(self.percentiles, scores[:, None])[:, 0]
        reach, nominal = BAND_SCORES.repeat(len(scores), 1), torch.from_numpy(scores.copy())
        for rows, conformal in maps:
            widening = torch.from_numpy(self.outside[rows])
            reach[rows] = conformal.calibrated(reach[rows], widening.unsqueeze(1))
            nominal[rows] = conformal.nominal_of(nominal[rows], widening)
            crps[rows] *= ratio_of_crps(self.percentiles[rows], targets[rows], conformal, widening)
        asked = reach.numpy()
        at = percentiles_at(self.percentiles, np.concatenate([asked, np.zeros((len(scores), 1))], axis=1))
        median = at[:, -1:]
        # A row that is surely at a cap has no variance.
        ends = median + (std / np.sqrt(np.maximum(own, LEAST)))[:, None] * (at[:, :-1] - median)
        inside = (scores[:, None] >= asked[:, 0::2]) & (scores[:, None] <= asked[:, 1::2])
        # The calibrated std is to the raw one as the outermost band is.
        wider = (asked[:, -1] - asked[:, -2]) / float(BAND_SCORES[-1] - BAND_SCORES[-2])
        return Bands.around(self.together.mean, std * wider, ends, crps, numbers_of(normal_cdf(nominal)), inside)


@dataclass(frozen=True, slots=True)
class ClassesByJudges(RowArrays):
    """n held-out rows of classes, under their judges.

    Attributes:
        together: The rows, judged by the raw answers of the judges.
        pooled: Pooled probabilities, ``[n, C]``.
        epistemic_share: Of the entropy, ``[n]``.
        outside: Whether the row lies beyond the training rows, bool ``[n]``.
        shares: Of the classes, ``[C]``.
    """

    together: JudgedClasses
    pooled: Doubles
    epistemic_share: Doubles
    outside: Bools
    shares: Tensor

    @classmethod
    def of(
        cls,
        drawn: DrawnRows,
        rows: Ints,
        targets: Doubles,
        *_: Any,
    ) -> Self:
        """Judge B rows under draws of their judges; takes the arguments of `NumbersByJudges.of`."""
        predictive = cast("ClassPredictive", drawn.predictive())
        return cls(
            together=JudgedClasses.of(drawn, rows, targets[rows], None),
            pooled=numbers_of(predictive.pooled()),
            epistemic_share=numbers_of(predictive.epistemic_share()),
            outside=numbers_of(drawn.widening),
            shares=predictive.shares.cpu(),
        )

    def calibrated(self, fitting: _Fitting[ClassCalibration]) -> tuple[ClassCalibration | None, JudgedClasses]:
        """The calibration, if there is to be one, and the rows as answers would be."""
        labels, logs = torch.from_numpy(self.together.labels), torch.from_numpy(self.pooled).log()
        outside, share = torch.from_numpy(self.outside), torch.from_numpy(self.epistemic_share)
        earlier = fitting.earlier

        def counts_of(rows: Bools) -> dict[str, Any]:
            counts = fitting.weights.of_rows(rows)
            return {
                "weights": torch.from_numpy(counts.amounts) if counts.weighted else None,
                "units": counts.units if counts.grouped else None,
            }

        def answered(mapped: ClassMap) -> Tensor:
            return served_probabilities(logs.exp(), mapped, self.shares, outside, lambda: share)

        def fit_map(rows: Bools) -> ClassMap:
            return fit_class_map(
                logs[rows],
                labels[rows],
                **counts_of(rows),
                earlier=None if earlier is None else earlier.map,
                earlier_rows=0 if earlier is None else earlier.rows,
            )

        def fit_sets(rows: Bools) -> PredictionSets:
            return fit_prediction_sets(
                served[rows],
                labels[rows],
                **counts_of(rows),
                method=fitting.method if earlier is None else POOLED,
                earlier=None if earlier is None else earlier.sets,
            )

        calibration, served = None, torch.empty_like(logs)
        if fitting.calibrating.any():
            for inside, mapped in fitting.crosswise(fit_map):
                served[inside] = answered(mapped)[inside]
            chosen = fitting.calibrating
            mapped = fit_map(chosen)
            evidence = HeldOutClasses.of(
                numbers_of(served)[chosen],
                self.together.labels[chosen],
                fitting.outlier[chosen],
                fitting.weights.units[chosen],
                None if earlier is None else earlier.held_out,
            )
            calibration = ClassCalibration(mapped, fit_sets(chosen), evidence)
            calibrations = [(inside, ClassCalibration(mapped, sets)) for inside, sets in fitting.crosswise(fit_sets)]
        elif fitting.own is None:
            return None, self.together
        else:
            served, calibrations = answered(fitting.own.map), [(np.ones(len(labels), dtype=bool), fitting.own)]
        sets = {coverage: np.empty(served.shape, dtype=np.bool_) for coverage in SET_COVERAGES}
        for inside, of_others in calibrations:
            for coverage, found in prediction_sets(served[inside], of_others, outside[inside]).items():
                sets[coverage][inside] = found
        raw = self.together
        return calibration, replace(
            raw,
            probabilities=raw.probabilities | {"calibrated": numbers_of(served)},
            sets=raw.sets | {"calibrated": sets},
        )
