"""How outputs of networks become answers about numbers or classes, and the contract of the engines that make them.

A target model makes the predictive distribution, in the target's own unit, from the network's outputs. A plan has a
request's options, prepared once for all its rows, and makes the answer from a predictive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from murho.model.arrays import Array, Bools, Doubles
from murho.model.bbb.likelihood import ClassLikelihood, NumericLikelihood
from murho.model.calibration.class_calibration import Calibration, ClassCalibration, ClassMap
from murho.model.calibration.conformal import AdaptedMap, CalibratedSpread, ConformalMap
from murho.model.distributions.class_predictive import ClassPredictive, entropy
from murho.model.distributions.mixtures import FURTHEST_SCORE, WideRule, normal_cdf, score_of_tails
from murho.model.distributions.predictive import Predictive, function_exceedance, function_quantiles
from murho.model.distributions.target_transforms import Standardisation
from murho.model.predictive.draws import Draws
from murho.model.predictive.prediction import ClassPrediction, Prediction, PredictOptions

Arrays: TypeAlias = dict[str, Array]

KEPT_PLANS = 64
"""Plans in the cache: most requests to a service have the same options."""


@dataclass(frozen=True, slots=True)
class PredictionPlan:
    """The options of a request in the form that engines need, the same for every row.

    With a calibration, engines compute quantiles at L = K + n scores: those of the K levels, and after them the n nodes
    of the calibrated standard deviation. Without one, L is K.

    Attributes:
        options: Options of the request.
        calibration: Calibrates the spread, percentiles and exceedance; None: they are raw.
        spread: Gives the calibrated standard deviation; None without calibration.
        levels: The percentile levels as probabilities, ``[K]``, float64; after those asked for those of the grid.
        scores: Normal scores in the raw predictive, for rows like the training rows, ``[L]``.
        wider: The same for rows beyond the training rows, where calibration may only widen bands, ``[L]``.
        thresholds: ``[T]``, float64.
    """

    options: PredictOptions
    calibration: ConformalMap | AdaptedMap | None
    spread: CalibratedSpread | None
    levels: Tensor
    scores: Tensor
    wider: Tensor
    thresholds: Tensor

    @classmethod
    def of(cls, options: PredictOptions, calibration: ConformalMap | None, device: torch.device) -> Self:
        """Prepare the plan of a request.

        Args:
            options: Options of the request.
            calibration: The checkpoint's calibration, or None; not used without noise or without draws.
            device: The device that computes the answer.
        """
        used: ConformalMap | AdaptedMap | None = None
        if options.noise and options.calibrated and options.samples > 0:
            used = calibration if options.adapted is None else AdaptedMap(options.adapted.drift_map, calibration)
        levels = torch.tensor(options.percentiles + options.grid, dtype=torch.float64, device=device) / 100.0
        scores = wider = torch.special.ndtri(levels)
        spread = None
        if used is not None:
            spread = CalibratedSpread.of(used, device)
            scores, wider = (
                torch.cat((used.calibrate(scores, only_widen), spread.nodes)) for only_widen in (False, True)
            )
        scores, wider = (part.clamp(-FURTHEST_SCORE, FURTHEST_SCORE) for part in (scores, wider))
        thresholds = torch.tensor(options.thresholds, dtype=torch.float64, device=device)
        return cls(options, used, spread, levels, scores, wider, thresholds)

    def answer(self, predictive: Predictive, only_widen: Tensor) -> Arrays:
        """Return the answer from a raw predictive of B rows.

        Args:
            predictive: The predictive.
            only_widen: Whether calibration may only widen the bands of each row, ``[B]``.

        Returns:
            What `Engine.answer` returns.
        """
        options = self.options
        if options.samples == 0:
            mean = _array(predictive.means.mean(dim=0))
            return {"mean": mean} | ({"draws": np.empty((len(mean), 0))} if options.draws else {})
        mean, epistemic, aleatoric = map(_array, predictive.moments)
        answer = {"mean": mean, "epistemic_std": epistemic, "aleatoric_std": aleatoric}
        if options.noise:
            quantiles = predictive.quantiles(self.scores_of(only_widen))
            answer |= self.of_quantiles(mean, epistemic, aleatoric, _array(quantiles), _array(only_widen))
            answer["percentiles"] = _array(predictive.report_quantiles(quantiles[:, : len(self.levels)]))
            if options.thresholds:
                answer["exceedance"] = self.exceedance(*predictive.tails(self.thresholds), only_widen)
        else:
            answer |= {"std": epistemic} | self.of_functions(predictive.means)
        if options.draws:
            answer["draws"] = _array(predictive.means.T)
        if options.noise_moments:
            answer["variances"] = _array(predictive.noise.square().expand_as(predictive.means).T)
            answer["third"] = _array(predictive.third_moment())
        return answer

    def prediction(self, answer: Mapping[str, Any], **facts: Any) -> Prediction:
        """Return the answer with what else belongs to it; its grid is a field of its own."""
        if self.options.grid:
            count, all_of = len(self.options.percentiles), answer["percentiles"]
            facts |= {"grid": all_of[:, count:]}
            answer = {**answer, "percentiles": all_of[:, :count]}
        return Prediction(**facts, **answer)

    def of_quantiles(
        self,
        mean: Doubles,
        epistemic: Doubles,
        aleatoric: Doubles,
        quantiles: Doubles,
        only_widen: Bools,
    ) -> Arrays:
        """Percentiles, mean, and the three standard deviations of B rows, which calibration multiplies by one ratio.

        Args:
            mean: Raw mean, ``[B]``, which only outcomes move.
            epistemic: Raw epistemic_std, ``[B]``.
            aleatoric: Raw aleatoric_std, ``[B]``.
            quantiles: At the scores, ``[B, L]``.
            only_widen: Whether calibration may only widen the bands of each row, ``[B]``.
        """
        count = len(self.levels)
        if self.spread is not None:
            ratio = self.spread.ratio(quantiles[:, count:], only_widen)
            epistemic, aleatoric = epistemic * ratio, aleatoric * ratio
            mean = self.spread.shift_mean(mean, quantiles[:, count:], only_widen)
        return {
            "mean": mean,
            "std": np.hypot(epistemic, aleatoric),
            "epistemic_std": epistemic,
            "aleatoric_std": aleatoric,
            "percentiles": quantiles[:, :count],
        }

    def scores_of(self, only_widen: Tensor) -> Tensor:
        """Return the scores of each of B rows, ``[B, L]``."""
        return torch.where(only_widen.unsqueeze(1), self.wider, self.scores)

    def of_functions(self, means: Tensor) -> Arrays:
        """Percentiles and exceedance of the function alone, from function values ``[S, B]``."""
        answer = {"percentiles": _array(function_quantiles(means, self.levels))}
        if self.options.thresholds:
            answer["exceedance"] = _array(function_exceedance(means, self.thresholds))
        return answer

    def exceedance(self, below: Tensor, above: Tensor, only_widen: Tensor) -> Doubles:
        """Return the probability that an observation exceeds each threshold; calibrated, if there is a calibration.

        Args:
            below: Raw probabilities of an observation below each threshold, ``[B, T]``.
            above: Raw probabilities of one above it, ``[B, T]``.
            only_widen: Whether calibration may only widen the bands of each row, ``[B]``.

        Returns:
            ``[B, T]``.
        """
        if self.calibration is None:
            return _array(above)
        scores = score_of_tails(below, above)
        calibrated = normal_cdf(-self.calibration.nominal_of(scores, only_widen=only_widen.unsqueeze(1)))
        # What lies beyond a limit of the target stays impossible, or sure.
        return _array(torch.where(above == 0.0, above, torch.where(below == 0.0, 1.0, calibrated)))


def _array(values: Tensor) -> Array:
    return values.cpu().numpy()


def served_probabilities(
    raw: Tensor,
    mapped: ClassMap | None,
    shares: Tensor,
    only_widen: Tensor | None,
    epistemic_share: Callable[[], Tensor],
) -> Tensor:
    """Return the class probabilities of an answer.

    Raw probabilities have a little of the class shares in them, and are calibrated. In rows beyond the training rows
    calibration never makes the answer surer, and the weight of the shares is the square of the epistemic share of the
    entropy: where draws disagree, less is known beyond how frequent each class is. The square keeps the step small at
    the edge of the training rows, where draws agree.

    Args:
        raw: Pooled probabilities, ``[B, C]``.
        mapped: Calibrates them; None: they stay raw.
        shares: Shares of the classes, ``[C]``.
        only_widen: Mask of the rows where calibration may only make the answer less sure, ``[B]``; None: there is none.
        epistemic_share: Gives the epistemic share of the entropy of each row, ``[B]``.

    Returns:
        ``[B, C]``.
    """
    probabilities = raw
    if mapped is not None:
        # A map has a floor of its own, so the shares are not mixed in again.
        probabilities = mapped.log_probabilities(raw.log()).exp()
    if only_widen is None:
        return probabilities
    surer = probabilities.amax(dim=1) > raw.amax(dim=1)
    probabilities = torch.where((only_widen & surer).unsqueeze(1), raw, probabilities)
    weight = torch.where(only_widen, epistemic_share().square(), 0.0).unsqueeze(1)
    return torch.lerp(probabilities, shares.expand_as(raw), weight)


@dataclass(frozen=True, slots=True)
class ClassPlan:
    """The options of a request about classes, the same for every row.

    Attributes:
        options: Options of the request.
        calibration: Calibrates the probabilities, and makes the prediction sets; None: both are raw.
        levels: The percentile levels as probabilities, ``[K]``, float64.
        classes: Names of the C classes.
    """

    options: PredictOptions
    calibration: ClassCalibration | None
    levels: Tensor
    classes: tuple[str, ...]

    @classmethod
    def of(
        cls,
        options: PredictOptions,
        calibration: ClassCalibration | None,
        device: torch.device,
        classes: tuple[str, ...],
    ) -> Self:
        """Prepare the plan of a request.

        Args:
            options: Options of the request.
            calibration: The checkpoint's calibration, or None; not used without draws.
            device: The device that computes the answer.
            classes: Names of the C classes.
        """
        if not (options.calibrated and options.samples > 0):
            calibration = None
        levels = torch.tensor(options.percentiles, dtype=torch.float64, device=device) / 100.0
        return cls(options, calibration, levels, classes)

    def answer(self, predictive: ClassPredictive, only_widen: Tensor) -> Arrays:
        """Return the answer for B rows.

        Args:
            predictive: Predictive of the rows; that of the mu-only networks for ``samples=0``.
            only_widen: Whether calibration may only make the answer of each row less sure, ``[B]``.

        Returns:
            The requested numbers by the names of `model.predictive.prediction.ClassPrediction`.
        """
        options = self.options
        probabilities = self.probabilities(predictive, only_widen)
        answer = {"prediction": _array(probabilities.argmax(dim=1)), "probabilities": _array(probabilities)}
        if options.samples == 0:
            if options.draws:
                answer["draws"] = np.empty((len(probabilities), 0, probabilities.shape[1]))
            return answer
        matched, of_classes = predictive.match_mean(probabilities), (*probabilities.shape, len(self.levels))
        total = entropy(probabilities, dim=1)
        found = {
            "epistemic_std": matched.epistemic_std,
            "entropy": total,
            "epistemic_entropy": (total - matched.expected_entropy).clamp_min(0.0),
            "percentiles": function_quantiles(matched.draws.flatten(0, 1).T, self.levels).view(*of_classes),
            "prediction_set": self.sets(probabilities, only_widen),
        }
        if options.draws:
            found["draws"] = matched.draws.transpose(1, 2)
        return answer | {name: _array(part) for name, part in found.items()}

    def probabilities(self, predictive: ClassPredictive, only_widen: Tensor) -> Tensor:
        """Return the class probabilities of the answer, ``[B, C]``."""
        mask = only_widen if self.options.samples > 0 and bool(only_widen.any()) else None
        mapped = None if self.calibration is None else self.calibration.map
        return served_probabilities(predictive.pool(), mapped, predictive.shares, mask, predictive.epistemic_share)

    def prediction(self, answer: Mapping[str, Any], **facts: Any) -> ClassPrediction:
        """Return the prediction of an answer's arrays and of what else belongs to it."""
        return ClassPrediction(classes=self.classes, **facts, **answer)

    def sets(self, probabilities: Tensor, only_widen: Tensor | None = None) -> Tensor:
        """Whether each class is in the prediction set of its row, ``[B, C]``, bool.

        Rows beyond the training rows also have the likeliest classes whose probabilities make up the coverage: the
        thresholds were learned from rows that tell classes apart better.

        Args:
            probabilities: Those of the answer, ``[B, C]``, see `probabilities`.
            only_widen: As `served_probabilities` takes it.
        """
        if self.calibration is None:
            return self._likeliest(probabilities)
        sets = self.calibration.sets.sets(probabilities, self.options.coverage)
        if only_widen is None or not bool(only_widen.any()):
            return sets
        return sets | (only_widen.unsqueeze(1) & self._likeliest(probabilities))

    def _likeliest(self, probabilities: Tensor) -> Tensor:
        """Return the likeliest classes whose probabilities make up the coverage, ``[B, C]``, bool."""
        ordered, order = probabilities.sort(dim=1, descending=True, stable=True)
        before = ordered.cumsum(dim=1) - ordered
        return torch.zeros_like(ordered, dtype=torch.bool).scatter(1, order, before < self.options.coverage)


@dataclass(frozen=True, slots=True)
class TargetModel:
    """Maps the outputs of a checkpoint's network to the distribution of the target.

    Attributes:
        likelihood: The observation model, on the device of the outputs.
        standardisation: Of the target that the network learned.
        wide: The rule of wide components; None: there are none.
        members: M.
        least_tile_rows: Rows that a tile should have at least where its memory allows: products of fewer are slow.
        warm_up: Options that make the code of every kind of answer run once.
    """

    likelihood: NumericLikelihood
    standardisation: Standardisation
    wide: WideRule | None
    members: int = 1
    least_tile_rows: ClassVar[int] = 256
    warm_up: ClassVar = PredictOptions(), PredictOptions(samples=0), PredictOptions(noise=False, thresholds=(0.0,))

    def plan(self, options: PredictOptions, calibration: Calibration | None, device: torch.device) -> PredictionPlan:
        """Return the prepared plan of a request's options."""
        return PredictionPlan.of(options, cast("ConformalMap | None", calibration), device)

    def predictive(self, outputs: Tensor, members: Tensor, *, widened: bool = True) -> Predictive:
        """Return the raw predictive distribution of the target of each row.

        Args:
            outputs: Outputs of the network, ``[S, B, P]``, standardised.
            members: Member of each draw, ``[S]``.
            widened: Whether to add the wide component, if there is a rule for it.
        """
        parts = [part.double() for part in self.likelihood.parts(outputs, members)]
        return self.likelihood.predictive(parts, self.standardisation, self.wide if widened else None)


@dataclass(frozen=True, slots=True)
class ClassTargetModel:
    """Maps the outputs of a classifier's network to the distribution of the class.

    Attributes:
        likelihood: The observation model, on the device of the outputs.
        classes: Names of the C classes.
        shares: Share of each class among the training rows, ``[C]``, float64.
        least: Least weight of the shares in an answer.
        least_tile_rows: Outputs of many classes fill the memory of a tile by themselves.
        warm_up: As of a `TargetModel`.
    """

    likelihood: ClassLikelihood
    classes: tuple[str, ...]
    shares: Tensor
    least: float
    least_tile_rows: ClassVar[int] = 1
    warm_up: ClassVar = PredictOptions(), PredictOptions(samples=0)

    def predictive(self, outputs: Tensor, members: Tensor, *, widened: bool = True) -> ClassPredictive:  # noqa: ARG002 - only numbers have wide components
        """Return the raw predictive distribution of the class of each row.

        Args:
            outputs: Outputs of the network, ``[S, B, P]``.
            members: Member of each draw, ``[S]``.
            widened: Not used: classes have no wide component.
        """
        return ClassPredictive.of(self.likelihood.log_probabilities(outputs.double()), self.shares, self.least)

    def plan(self, options: PredictOptions, calibration: Calibration | None, device: torch.device) -> ClassPlan:
        """Return the prepared plan of a request's options."""
        return ClassPlan.of(options, cast("ClassCalibration | None", calibration), device, self.classes)


AnyPlan: TypeAlias = PredictionPlan | ClassPlan
AnyTargetModel: TypeAlias = TargetModel | ClassTargetModel


class Engine(Protocol):
    """Computes answers for one target model. A posterior picks its engine once, when it is loaded."""

    name: str

    def forward(self, draws: Draws, rows: Tensor) -> Tensor:
        """Return outputs of every row under every draw.

        Args:
            draws: S draws.
            rows: Encoded rows, ``[B, D]``, float32, on the draws' device.

        Returns:
            ``[S, B, P]``, standardised. Up to rounding, a row's outputs do not depend on the other rows.
        """
        ...

    def answer(self, plan: AnyPlan, drawn: DrawnRows) -> Arrays:
        """Return the numbers that a plan requests.

        Args:
            plan: The prepared request, of the target's kind.
            drawn: The rows; under the mu-only networks for ``samples=0``.

        Returns:
            The requested numbers in the target's unit, by the names of `Prediction` or `ClassPrediction`,
            without the Monte Carlo standard errors.
        """
        ...


@dataclass(frozen=True, slots=True)
class DrawnRows:
    """B rows under S draws, or under the mu-only networks.

    Attributes:
        outputs: Outputs of the network, ``[S, B, P]``, standardised.
        members: Member of each draw, ``[S]``.
        only_widen: Whether calibration may only widen the bands of each row, ``[B]``: outliers, and
            those whose spread is mostly that of imputed cells.
        target: Maps the outputs to the distribution of the target.
        engine: Computes answers.
    """

    outputs: Tensor
    members: Tensor
    only_widen: Tensor
    target: AnyTargetModel
    engine: Engine

    def of_rows(self, rows: Tensor) -> DrawnRows:
        """Return some of the rows, by their indices; copied."""
        return replace(self, outputs=self.outputs[:, rows], only_widen=self.only_widen[rows])

    def of_draws(self, draws: slice) -> DrawnRows:
        """Return the rows under some of the draws, as views."""
        return replace(self, outputs=self.outputs[draws], members=self.members[draws])

    def predictive(self, *, widened: bool = True) -> Predictive | ClassPredictive:
        """Return the raw predictive of each row; computed by PyTorch, and so the same to the bit with every engine.

        Args:
            widened: Whether numbers have the wide component, if there is a rule for it.
        """
        return self.target.predictive(self.outputs, self.members, widened=widened)

    def answer(self, plan: AnyPlan) -> Arrays:
        """Return the numbers that a plan requests, without Monte Carlo errors; see `Engine.answer`."""
        return self.engine.answer(plan, self)

    def observation(self, levels: Sequence[float], calibration: ConformalMap | None = None) -> Arrays:
        """Return the answer for an observation, in the target's unit, by the names of `Prediction`.

        Args:
            levels: K percentile levels, strictly between 0 and 100.
            calibration: Calibrates the spread and the percentiles; None: they are raw.
        """
        options = PredictOptions(samples=len(self.members), percentiles=tuple(levels))
        return self.answer(PredictionPlan.of(options, calibration, self.outputs.device))
