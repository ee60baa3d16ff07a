"""Scores of labelled rows of either kind of target, pass by pass; all metrics are computed from them.

Only a few numbers per row are kept, so that a million rows fit into memory: `RowScores` of a target that is a number,
`ClassScores` of classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from murho.model.checkpoint.row_answers import in_pieces
from murho.model.distributions.classes import entropy
from murho.model.encoding.imputation import rows_to_impute
from murho.model.errors import OptionError
from murho.model.evaluation.metrics import PERCENTILES, BandScores, RowArrays, RowWeights, band_levels, mean_scores
from murho.model.predictive.plans import ClassPlan
from murho.model.predictive.prediction import PredictOptions
from murho.model.runtime import give_back

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from murho.model.calibration.classes import ClassCalibration
    from murho.model.calibration.conformal import ConformalMap
    from murho.model.checkpoint.posterior import Posterior
    from murho.model.checkpoint.row_answers import DrawnRows
    from murho.model.tables.schema import Columns
    from murho.model.tables.splits import HeldOut

__all__ = [
    "SAMPLES",
    "ClassScores",
    "RowScores",
    "in_passes",
    "judge_groups",
    "numbers_of",
    "score_class_rows",
    "score_columns",
    "score_rows",
]

SAMPLES = 256
"""Draws per held-out row, shared by its judges."""
MOST_ROWS_PER_PASS = 256
VALUES_PER_PASS = 2**22
"""Values of rows, draws and classes at a time: 32 MiB."""

Scores = TypeVar("Scores", bound=RowArrays)


@torch.inference_mode()
def in_passes(
    posterior: Posterior,
    encoded: NDArray[np.float32],
    score: Callable[[DrawnRows, slice], Scores],
    *,
    samples: int,
    members: Sequence[int] | None = None,
    classes: int = 1,
) -> Scores:
    """Score rows, a few hundred of them at a time.

    Args:
        posterior: The posterior.
        encoded: Encoded rows, ``[N, D]``, at least one, or R imputed copies of each, ``[R, N, D]``.
        score: Scores the rows of a pass under their draws; gets their places among the N.
        samples: S, at least 1.
        members: The S draws cycle through these members; None: through all.
        classes: C; 1 for a target that is a number.

    Raises:
        OptionError: S is 0: the mu-only network has no doubt to judge.
    """
    if samples < 1:
        raise OptionError("judging a posterior takes at least one draw")
    count, most = encoded.shape[-2], max(1, min(MOST_ROWS_PER_PASS, VALUES_PER_PASS // (samples * classes)))
    parts = []
    for start in range(0, count, most):
        rows = slice(start, min(start + most, count))
        features = torch.from_numpy(encoded[..., rows, :]).to(posterior.device)
        parts.append(score(posterior.drawn(features, samples, posterior.seed, members=members), rows))
    return parts[0].joined(parts)


def judge_groups(
    posterior: Posterior,
    encoded: NDArray[np.float32],
    groups: Sequence[HeldOut],
    score: Callable[[DrawnRows, HeldOut, NDArray[np.int64], int], Scores],
    *,
    classes: int = 1,
) -> Scores:
    """Score held-out rows, each under the members that have not seen it, its judges.

    Args:
        posterior: The fit.
        encoded: All rows of the table, ``[N, D]``.
        groups: Held-out rows, each with the members that have not seen them.
        score: Scores the rows of a pass; gets their draws, their group, their numbers in the table and the group's.
        classes: C; 1 for a target that is a number.
    """
    parts = []
    for number, group in enumerate(groups):
        if len(group.rows):

            def of_group(drawn: DrawnRows, rows: slice, group: HeldOut = group, number: int = number) -> Scores:
                return score(drawn, group, group.rows[rows], number)

            rows, members = encoded[group.rows], group.members
            parts.append(in_passes(posterior, rows, of_group, samples=SAMPLES, members=members, classes=classes))
    give_back()
    return parts[0].joined(parts)


def score_columns(
    posterior: Posterior,
    columns: Columns,
    targets: NDArray[np.float64],
    samples: int,
    weights: NDArray[np.float64] | None = None,
) -> Any:
    """Score labelled rows; those with missing cells that the training rows did not have are imputed.

    Args:
        posterior: The posterior.
        columns: Canonical columns of the schema's features, ``[N]`` each.
        targets: ``[N]``, the target's unit; a classifier does not look at them.
        samples: S, at least 1.
        weights: Weight of each row in the sums of numbers, ``[N]``; None: all are 1.

    Returns:
        `RowScores`, or of a classifier `ClassScores`.
    """
    parts: list[RowArrays] = []
    numbers = []
    for rows, part, imputed in in_pieces(columns, rows_to_impute(posterior.schema, columns), posterior.encoder.width):
        encoded = posterior.encoder.encode_copies(part) if imputed else posterior.encoder.encode(part)
        numbers.append(rows)
        if posterior.schema.target.classes is not None:
            parts.append(score_class_rows(posterior, encoded, samples))
            continue
        parts.append(
            score_rows(
                posterior,
                encoded,
                targets[rows],
                samples=samples,
                calibration=posterior.calibration,
                levels=sorted({*band_levels(), *PERCENTILES}),
                weights=None if weights is None else weights[rows],
            )
        )
    return parts[0].joined(parts).of_rows(np.argsort(np.concatenate(numbers)))


@dataclass(frozen=True, slots=True)
class RowScores(RowArrays):
    """Scores of N rows; ``[N]``, float64 and in the target's unit unless noted otherwise.

    Attributes:
        targets: Observed targets.
        errors: Predicted mean minus target.
        nll: Negative log density of the predictive at the target, nats.
        crps: Continuous ranked probability score of the predictive.
        scores: Normal score of the target under the raw predictive: the normal quantile of its PIT.
        epistemic: Epistemic standard deviation of the raw predictive.
        aleatoric: Aleatoric standard deviation of the raw predictive.
        std: Standard deviation that answers give: calibrated, if there is a calibration.
        outside: Whether the row lies beyond the training rows, bool.
        raw: Scores of the raw percentiles.
        calibrated: Scores of the calibrated percentiles; None without calibration.
    """

    targets: NDArray[np.float64]
    errors: NDArray[np.float64]
    nll: NDArray[np.float64]
    crps: NDArray[np.float64]
    scores: NDArray[np.float64]
    epistemic: NDArray[np.float64]
    aleatoric: NDArray[np.float64]
    std: NDArray[np.float64]
    outside: NDArray[np.bool_]
    raw: BandScores
    calibrated: BandScores | None

    @property
    def raw_std(self) -> NDArray[np.float64]:
        """Standard deviation of the raw predictive."""
        return np.hypot(self.epistemic, self.aleatoric)

    def report(self, rows: RowWeights | None = None) -> dict[str, Any]:
        """Weighted means over rows; ``n`` is the number of rows, whatever their weights.

        Args:
            rows: The weights that the rows were scored with; None: all are equal.

        Returns:
            ``n, rmse, mae, r2, nll, crps``, and ``raw`` and ``calibrated`` (None without calibration), each a
            `model.evaluation.metrics.BandScores.report` with ``rms_std_ratio``, the RMSE over the root mean square of
            the standard deviation. The scores ``nll`` and ``crps`` are those of the raw predictive.
        """
        rows = rows or RowWeights.of(len(self.targets))
        square = np.square(self.errors)
        values = {"square": square, "absolute": np.abs(self.errors), "nll": self.nll, "crps": self.crps}

        def of_bands(bands: BandScores, std: NDArray[np.float64]) -> dict[str, Any]:
            ratio = float(np.sqrt(rows.mean(square) / rows.mean(np.square(std))))
            return {**bands.report(rows), "rms_std_ratio": ratio}

        return {
            "n": len(self.targets),
            **mean_scores(values, self.targets, rows),
            "raw": of_bands(self.raw, self.raw_std),
            "calibrated": None if self.calibrated is None else of_bands(self.calibrated, self.std),
        }


def score_rows(
    posterior: Posterior,
    encoded: NDArray[np.float32],
    targets: NDArray[np.float64],
    *,
    samples: int,
    calibration: ConformalMap | None = None,
    levels: Sequence[float] | None = None,
    weights: NDArray[np.float64] | None = None,
) -> RowScores:
    """Score a posterior on labelled rows of a target that is a number.

    Args:
        posterior: The posterior.
        encoded: Encoded rows, see `in_passes`.
        targets: ``[N]``, the target's unit.
        samples: S, at least 1.
        calibration: Map for calibrated bands; None for raw bands only.
        levels: Percentile levels to score. They must include `model.evaluation.metrics.band_levels`, the default.
        weights: Weight of each row in the sums of `BandScores`, ``[N]``; None: all are 1.
    """
    at = levels or band_levels()

    def score(drawn: DrawnRows, rows: slice) -> RowScores:
        predictive, observed = drawn.predictive(), targets[rows]
        truth = torch.from_numpy(observed).to(posterior.device)
        mean, epistemic, aleatoric = predictive.split()
        raw = drawn.answer(at)
        served = None if calibration is None else drawn.answer(at, calibration)
        counts = None if weights is None else weights[rows]
        return RowScores(
            targets=observed,
            errors=numbers_of(mean - truth),
            nll=numbers_of(-predictive.log_density(truth)),
            crps=numbers_of(predictive.crps(truth)),
            scores=numbers_of(predictive.normal_score(truth.unsqueeze(0))[0]),
            epistemic=numbers_of(epistemic),
            aleatoric=numbers_of(aleatoric),
            std=(served or raw)["std"],
            outside=numbers_of(drawn.outside.mask),
            raw=BandScores.of(raw["percentiles"], observed, at, counts),
            calibrated=None if served is None else BandScores.of(served["percentiles"], observed, at, counts),
        )

    return in_passes(posterior, encoded, score, samples=samples)


@dataclass(frozen=True, slots=True)
class ClassScores(RowArrays):
    """Probabilities of N rows.

    Attributes:
        raw: Raw probabilities, ``[N, C]``.
        calibrated: Calibrated ones, ``[N, C]``; None without calibration.
        epistemic_entropy: Mutual information of class and weights in the served probabilities, nats, ``[N]``.
        calibration: The calibration of the checkpoint, or None.
    """

    raw: NDArray[np.float64]
    calibrated: NDArray[np.float64] | None
    epistemic_entropy: NDArray[np.float64]
    calibration: ClassCalibration | None

    @property
    def served(self) -> NDArray[np.float64]:
        """The probabilities that answers give, ``[N, C]``."""
        return self.raw if self.calibrated is None else self.calibrated

    @property
    def entropy(self) -> NDArray[np.float64]:
        """Entropy of the served probabilities, nats, ``[N]``."""
        return numbers_of(entropy(torch.from_numpy(self.served), dim=1))

    def sets(self, coverages: Sequence[int], *, calibrated: bool = True) -> dict[int, NDArray[np.bool_]]:
        """Prediction sets by nominal coverage, per cent: whether each class is in each row's set, ``[N, C]``.

        Args:
            coverages: In per cent.
            calibrated: Whether to use the calibration, if there is one; else the sets are raw.
        """
        calibration = self.calibration if calibrated else None
        probabilities = torch.from_numpy(self.raw if calibration is None else self.served)
        return {
            coverage: numbers_of(_plan(calibration, probabilities, 0.01 * coverage).sets(probabilities))
            for coverage in coverages
        }


def score_class_rows(posterior: Posterior, encoded: NDArray[np.float32], samples: int) -> ClassScores:
    """The probabilities of encoded rows, see `in_passes`."""
    calibration = posterior.calibration

    def score(drawn: DrawnRows, _: slice) -> ClassScores:
        predictive = drawn.predictive()
        pooled = predictive.pooled()
        raw = served = _plan(None, pooled).probabilities(predictive, drawn.outside)
        if calibration is not None:
            served = _plan(calibration, pooled).probabilities(predictive, drawn.outside)
        doubt = entropy(served, dim=1) - predictive.settled(served).expected_entropy
        return ClassScores(
            raw=numbers_of(raw),
            calibrated=None if calibration is None else numbers_of(served),
            epistemic_entropy=numbers_of(doubt.clamp_min(0.0)),
            calibration=calibration,
        )

    classes = len(posterior.schema.target.classes or ())
    return in_passes(posterior, encoded, score, samples=samples, classes=classes)


def _plan(calibration: ClassCalibration | None, probabilities: Tensor, coverage: float = 0.9) -> ClassPlan:
    return ClassPlan.of(PredictOptions(coverage=coverage), calibration, probabilities.device, ())


def numbers_of(values: Tensor) -> NDArray[Any]:
    """The values as an array of their own."""
    array: NDArray[Any] = values.cpu().numpy().copy()
    return array
