"""The calibration of a classifier: a map of its probabilities, and prediction sets.

The map is temperature scaling, or vector scaling where that is better on other rows. It is fitted to held-out rows with
penalties that are worth a few rows: with many rows they do not matter, with few they keep a map from following chance,
and a class without rows keeps about its probabilities.

A class is in a row's set if its calibrated probability is at least a threshold, and the likeliest class always is. The
threshold of coverage c is a conformal quantile of the probabilities that held-out rows gave to their own class
(least ambiguous sets, Sadinle, Lei and Wasserman 2019, doi:10.1080/01621459.2017.1395341: with right probabilities no
sets of the same coverage are smaller on average). Classes with enough held-out rows have a threshold of their own
(Mondrian: Vovk, Gammerman and Shafer 2005), so that a rare class is covered as well as a frequent one. The others
share one.

What holds for a new, exchangeable row of a class with a threshold of its own:

split-conformal
    No member has seen the held-out rows. The set contains the row's class with probability c at least, whatever the
    network: exactly, as only the number of rows decides whether a class has its own threshold. A new row of any of the
    classes that share a threshold is covered so, too, where the shares of these classes decide nothing on who shares.
cross-conformal
    Only some members have not seen a held-out row, and all answer. No theorem promises c (sets of K folds have about
    ``1 - 2 (1 - c)`` at least, Vovk et al. 2018; Barber et al. 2021); measured coverage is near it.
forward-conformal
    Rows in time, judged by members that have learned from earlier rows only, and then go on to the newest ones. Rows in
    time are not exchangeable: nothing is promised.
pooled-conformal
    After an update, every row counts alike, earlier or new. So a few new rows change little, many decide, and one row
    more never changes much. The version before judged the earlier rows, so nothing is promised.

A threshold is never above those of lower coverages, and the likeliest class is always in: either makes sets larger than
need be, never smaller. Where the likeliest class is right more often than c, sets cover more than c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from murho.model.calibration.abstention import HeldOutClasses
from murho.model.calibration.conformal import SPLIT, ConformalMap, Method
from murho.model.errors import OptionError
from murho.model.json_validation import Count, MisfitError, NotNegative, Share, Stored


@dataclass(frozen=True)
class ClassCalibration(Stored):
    """Calibration of a classifier, in place of a regression's `model.calibration.conformal.ConformalMap`.

    Attributes:
        map: From pooled to calibrated log-probabilities.
        sets: Prediction sets of calibrated probabilities.
        held_out: Held-out rows, which tell when a decision is too unsure; None: there are none.
        method: Tells it from a regression's in a file.
    """

    map: ClassMap
    sets: PredictionSets
    held_out: HeldOutClasses | None = None
    method: Literal["class"] = "class"

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless the map and the sets have as many classes."""
        if len(self.map.weights) != self.sets.classes:
            raise MisfitError("map.weights", f"{self.sets.classes} numbers, one for each class", self.map.weights)
        if self.held_out is not None and self.held_out.probabilities.shape[1] not in (0, self.sets.classes):
            shape = self.held_out.probabilities.shape
            raise MisfitError("held_out.probabilities", f"{self.sets.classes} numbers a row", list(shape))

    @property
    def rows(self) -> int:
        """Number of held-out rows behind it."""
        return self.sets.rows


Calibration: TypeAlias = ConformalMap | ClassCalibration
"""The calibration of a target of either kind."""

LEAST_LOG = -100.0
"""Log-probabilities below it count as it, so that a probability of 0 makes no NaN."""


@dataclass(frozen=True)
class ClassMap(Stored):
    """Vector scaling (Guo et al. 2017, "On calibration of modern neural networks") of the probabilities p of C classes.

    ``q = (1 - e) softmax(w log p + b) + e / C``. No probability is surer than the held-out rows can tell. With two
    classes this is beta calibration (Kull, Silva Filho and Flach 2017, "Beta calibration", equation 5).

    Attributes:
        weights: w, one for each class.
        intercept: b, likewise.
        floor: e.
    """

    weights: tuple[NotNegative, ...]
    intercept: tuple[float, ...]
    floor: Share = 0.0

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless there are as many intercepts as weights."""
        if len(self.intercept) != len(self.weights):
            raise MisfitError("intercept", f"{len(self.weights)} numbers, one for each class", self.intercept)

    @classmethod
    def none(cls, classes: int) -> Self:
        """Return the map that leaves the probabilities of C classes as they are."""
        return cls((1.0,) * classes, (0.0,) * classes)

    def log_probabilities(self, pooled: Tensor) -> Tensor:
        """Calibrated log-probabilities.

        Args:
            pooled: Log-probabilities of C classes, ``[..., C]``, normalised or not.

        Returns:
            Normalised ones, ``[..., C]``, of the same type.
        """
        logs = torch.log_softmax(pooled, dim=-1).clamp(min=LEAST_LOG)
        logits = logs * logs.new_tensor(self.weights) + logs.new_tensor(self.intercept)
        floor = logs.new_tensor(self.floor)
        return torch.logaddexp(torch.log_softmax(logits, dim=-1) + torch.log1p(-floor), (floor / logs.shape[-1]).log())


MINIMUM_ROWS = 20
"""Below this number of rows probabilities are left as they are."""
SLOPE_STD = 0.25
"""Standard deviation of the prior of the slope's logarithm. From 40 rows, 0.5 made probabilities that were right .005
nats worse a row, 0.25 hardly any."""
STRENGTH = 5.0
"""Factor of the penalties of what differs between classes, 1 in probmetrics. With 1 to 3 maps of 40 to 300 rows
followed chance, with 10 those of 900 rows were too stiff."""
UNIFORM_ROWS = 0.25
"""Weight of a row of equal probabilities of all classes, which is mixed into every map. With 1 (as in probmetrics)
nearly separable classes lost .015 nats a row, with 0 a few rows lost a lot."""


FOLDS = 5
"""Parts of the held-out rows: vector scaling is judged on each after a fit to the others."""


def fit_class_map(
    log_probabilities: Tensor,
    labels: Tensor,
    *,
    weights: Tensor | None = None,
    units: NDArray[np.generic] | None = None,
    earlier: ClassMap | None = None,
    earlier_rows: int = 0,
) -> ClassMap:
    """Fit the map to held-out rows.

    ``w = exp(t + d)`` and b minimise the cross entropy, summed over rows, plus ``t^2 / (2 0.25^2) + STRENGTH C (|d|^2 +
    |b|^2)``: temperature scaling with a prior, from which classes depart at a price (Berta, Holzmueller, Jordan and
    Bach 2025, "Structured matrix scaling for multi-class calibration"; the penalties but for `STRENGTH` are those of
    their package probmetrics). d and b are 0, unless vector scaling has a smaller cross entropy on rows that neither
    was fitted to, by more than one standard error of the difference.

    Args:
        log_probabilities: Of each held-out row, ``[n, C]``.
        labels: Class of each row, ``[n]``, whole numbers from 0 to C - 1.
        weights: Relative weights, ``[n]``, not negative; None: all rows count alike.
        units: Number of each row's exchangeable unit, ``[n]``, which no fold parts; None: each row is one.
        earlier: The map of earlier rows. What the new rows say after it is applied by their share in all rows.
        earlier_rows: Number of the rows behind it.

    Returns:
        The map; the earlier one, or one that changes nothing, for fewer than `MINIMUM_ROWS` rows in all.
    """
    classes = log_probabilities.shape[1]
    earlier = earlier or ClassMap.none(classes)
    shares = torch.ones(len(labels)) if weights is None else weights.detach().cpu()
    count = int((shares > 0.0).sum())
    rows = count + earlier_rows
    if rows < MINIMUM_ROWS or count == 0:
        return earlier
    logs = replace(earlier, floor=0.0).log_probabilities(log_probabilities.detach().cpu().double())
    truth = labels.cpu().long()
    # Weighted rows count as many as equal ones of the same information (Kish's effective sample size).
    shares = shares.double() * (shares.sum() / shares.square().sum())

    def losses(changes: Tensor, chosen: Tensor) -> Tensor:
        """Cross entropy of each chosen row; the changes are those of a temperature, or of vector scaling."""
        logits = logs[chosen] * torch.exp(changes[0] + changes[1 : classes + 1] if len(changes) > 1 else changes[0])
        logits = logits + changes[classes + 1 :] if len(changes) > 1 else logits
        return torch.nn.functional.cross_entropy(logits, truth[chosen], reduction="none")

    def fitted(start: Tensor, chosen: Tensor) -> Tensor:
        parameters = start.clone().requires_grad_()
        optimiser = torch.optim.LBFGS([parameters], max_iter=200, tolerance_grad=1e-6, line_search_fn="strong_wolfe")

        def objective() -> Tensor:
            optimiser.zero_grad()
            penalty = STRENGTH * classes * parameters[1:].square().sum() + 0.5 * (parameters[0] / SLOPE_STD).square()
            total: Tensor = (shares[chosen] @ losses(parameters, chosen) + penalty) / count
            total.backward()
            return total

        optimiser.step(objective)
        return parameters.detach()

    every = torch.ones(len(truth), dtype=torch.bool)
    found = fitted(torch.zeros(1, dtype=torch.float64), every)
    vector = fitted(torch.nn.functional.pad(found, (0, 2 * classes)), every)
    ids = np.arange(len(truth)) if units is None else np.unique(np.asarray(units), return_inverse=True)[1].reshape(-1)
    gains = torch.zeros(len(truth), dtype=torch.float64)
    for fold in range(FOLDS):
        inside = torch.from_numpy(ids % FOLDS == fold)
        if bool(inside.any()):
            of_others = (fitted(start, ~inside) for start in (found, vector))
            temperature, scaled = (losses(changes, inside) for changes in of_others)
            gains[inside] = temperature - scaled
    if _exceeds_its_error(gains.numpy(), shares.numpy(), ids):
        found = vector
    slope, apart, shifts = torch.nn.functional.pad(found * (count / rows), (0, 2 * classes + 1 - len(found))).split(
        (1, classes, classes)
    )
    scale = torch.exp(slope + apart)
    return ClassMap(
        tuple((scale * torch.tensor(earlier.weights)).tolist()),
        tuple((scale * torch.tensor(earlier.intercept) + shifts).tolist()),
        UNIFORM_ROWS / (rows + 1),
    )


def _exceeds_its_error(gains: NDArray[np.float64], shares: NDArray[np.float64], units: NDArray[np.int64]) -> bool:
    """Whether the weighted mean of gains is above its standard error, by the spread of the units' parts in it."""
    shares = shares / shares.sum()
    mean = float(shares @ gains)
    parts = np.bincount(units, shares * (gains - mean))
    count = len(parts)
    return count > 1 and mean > math.sqrt(float(np.square(parts).sum()) * count / (count - 1))


ROUNDING = 1e-9
"""Levels may miss a coverage by it."""


@dataclass(frozen=True)
class ClassGroup(Stored):
    """Held-out rows of a class, or of several classes with few rows each.

    Attributes:
        classes: Numbers of the classes.
        rows: Weight of these rows; the sum over groups is the number of rows.
        units: Number of exchangeable units behind them; the number of rows where these weigh alike and are one each.
        thresholds: Falling, ``[m]``: the i-th is that of the coverage ``i / (m + 1)``. With a unit a row, and not too
            many of them, they are the probabilities that the rows gave to their own class.
    """

    classes: tuple[Count, ...]
    rows: NotNegative
    units: NotNegative
    thresholds: tuple[Share, ...]

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless the thresholds fall."""
        if any(a < b for a, b in pairwise(self.thresholds)):
            raise MisfitError("thresholds", "falling numbers", self.thresholds)

    def threshold(self, coverage: float) -> float:
        """Return the threshold of the least known coverage from ``coverage`` on; 0: none is known."""
        place = math.ceil(coverage * (len(self.thresholds) + 1) - ROUNDING)
        return self.thresholds[place - 1] if place <= len(self.thresholds) else 0.0


@dataclass(frozen=True)
class PredictionSets(Stored):
    """Prediction sets of C classes for any coverage.

    Attributes:
        rows: Number of held-out rows behind the sets.
        groups: Of classes; each class is in one.
        method: What is known of the coverage, see the module.
    """

    rows: Count
    groups: tuple[ClassGroup, ...]
    method: Method = SPLIT

    def __post_init__(self) -> None:
        """Raise a `MisfitError` unless each class is in one group."""
        members = sorted(number for group in self.groups for number in group.classes)
        if members != list(range(self.classes)) or self.classes < 2:
            raise MisfitError("groups", "each class from 0 on in one group", members)

    @property
    def classes(self) -> int:
        """C."""
        return sum(len(group.classes) for group in self.groups)

    def sets(self, probabilities: Tensor, coverage: float) -> Tensor:
        """Return the set of each row.

        Args:
            probabilities: Calibrated, ``[B, C]``.
            coverage: c, strictly between 0 and 1.

        Returns:
            Whether a class is in the set, bool ``[B, C]``: at least one class in each row. Classes whose held-out rows
            are too few for the coverage always are. Sets of a higher coverage contain those of a lower one.

        Raises:
            OptionError: The coverage is not between 0 and 1.
        """
        inside = probabilities >= torch.from_numpy(self.thresholds(coverage)).to(probabilities)
        likeliest = probabilities.argmax(dim=-1, keepdim=True)
        return inside.scatter(-1, likeliest, torch.ones_like(likeliest, dtype=torch.bool))

    def thresholds(self, coverage: float) -> NDArray[np.float64]:
        """Probability from which on each class is in a set of this coverage, ``[C]``; 0 where rows are too few.

        Raises:
            OptionError: The coverage is not between 0 and 1.
        """
        if not 0.0 < coverage < 1.0:
            raise OptionError(f"coverage: expected a number strictly between 0 and 1, found {coverage}")
        thresholds = np.empty(self.classes)
        for group in self.groups:
            thresholds[list(group.classes)] = group.threshold(coverage)
        return thresholds


OWN_UNITS, SHARED_UNITS = 50.0, 200.0
"""Units from which on a class has a threshold of its own, and that classes which share one have together: 5 and 20 are
then expected outside sets of 90 %. With 5, the coverage differs by at most about 4.5 points for two thirds of the sets
of held-out rows (it has a Beta distribution). If the rows of the rarest classes alone decided the threshold, these
would be in almost every set."""
MAXIMUM_GROUPS = 12
MAXIMUM_THRESHOLDS = 2_400
"""Of all groups together. Where rows are more, every group has those of each 1/100, or of parts of it."""


def fit_prediction_sets(
    probabilities: Tensor,
    labels: Tensor,
    *,
    weights: Tensor | None = None,
    units: NDArray[np.generic] | None = None,
    method: str = SPLIT,
    earlier: PredictionSets | None = None,
) -> PredictionSets:
    """Prediction sets from held-out rows.

    Args:
        probabilities: Calibrated, ``[n, C]``.
        labels: Class of each row, ``[n]``, whole numbers from 0 to C - 1.
        weights: Relative weights, ``[n]``, not negative. Sets then cover the share c of the *weight* of new rows. None:
            all rows count alike.
        units: Id of each row's exchangeable unit, ``[n]``, such as its group. None: each row is one.
        method: Who judged the rows, see the module.
        earlier: Sets of earlier rows, which count like the new ones. Classes that shared a threshold still do.
    """
    count, classes = probabilities.shape
    codes = labels.detach().cpu().numpy().astype(np.int64)
    own = probabilities.detach().cpu().double().numpy()[np.arange(count), codes]
    shares = np.ones(count) if weights is None else weights.detach().cpu().double().numpy()
    shares = shares * (count / shares.sum()) if count else shares
    ids = np.arange(count) if units is None else np.unique(np.asarray(units), return_inverse=True)[1].reshape(-1)

    def units_of(chosen: NDArray[np.bool_]) -> float:
        """Return the effective number of units behind the chosen rows (Kish's effective sample size)."""
        parts = np.bincount(ids[chosen], shares[chosen])
        squares = np.sum(parts**2)
        return float(parts.sum() ** 2 / squares) if squares > 0.0 else 0.0

    if earlier is None:
        members = _members([units_of(codes == number) for number in range(classes)])
        before = tuple(ClassGroup(numbers, 0.0, 0.0, ()) for numbers in members)
    else:
        before = earlier.groups
    most = max(100, MAXIMUM_THRESHOLDS // len(before) // 100 * 100)
    groups = []
    for group in before:
        chosen = np.isin(codes, group.classes)
        points = np.concatenate([group.thresholds, own[chosen]])
        known = len(group.thresholds)
        mass = np.concatenate([np.full(known, group.rows / max(1, known)), shares[chosen]])
        together = group.units + units_of(chosen)
        thresholds = _thresholds(points, mass, together, most)
        groups.append(ClassGroup(group.classes, float(mass.sum()), together, thresholds))
    rows = int((shares > 0.0).sum()) + (0 if earlier is None else earlier.rows)
    return PredictionSets(rows, tuple(groups), method)


def _members(units: list[float]) -> list[tuple[int, ...]]:
    """Classes of each group, from the units of each class: the largest are alone, the others share the last group."""
    order = sorted(range(len(units)), key=lambda number: -units[number])
    alone = [number for number in order if units[number] >= OWN_UNITS][: MAXIMUM_GROUPS - 1]
    others = order[len(alone) :]
    # Nothing is known of classes without rows: they go with the smallest one.
    enough = SHARED_UNITS if any(units[number] for number in others) else 1.0
    while others and alone and sum(units[number] for number in others) < enough:
        others.insert(0, alone.pop())
    return [*((number,) for number in alone), *([tuple(sorted(others))] if others else [])]


def _thresholds(own: NDArray[np.float64], mass: NDArray[np.float64], units: float, most: int) -> tuple[float, ...]:
    """Conformal quantiles of the coverages ``1 / G, 2 / G, ...``, where G is the number of units and one, or ``most``.

    That of coverage c is the largest number that the share ``c (1 + 1 / units)`` of the rows is not below.
    """
    grid = min(int(units) + 1, most)
    order = np.argsort(-own, kind="stable")
    levels = np.cumsum(mass[order]) / mass.sum() if len(own) else mass
    wanted = np.arange(1, grid) / grid * (1.0 + 1.0 / max(1.0, units))
    found: list[float] = own[order][np.searchsorted(levels, wanted - ROUNDING)].tolist()
    return tuple(found)
