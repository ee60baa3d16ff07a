"""Judged rows of a target that is a number: errors of the mean, proper scores, bands, and the PIT.

The probability integral transform (PIT) of a row is ``u = F(y)``, the distribution function of its predictive at the
target. If predictives are calibrated, u is uniform on [0, 1] (Dawid 1984; Gneiting, Balabdaoui & Raftery 2007).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, cast

import numpy as np
import torch
from torch import Tensor

from murho.model.arrays import Array, Bools, Doubles, Floats, Ints
from murho.model.calibration.conformal import ConformalMap
from murho.model.distributions.mixtures import normal_cdf
from murho.model.distributions.predictive import Predictive
from murho.model.distributions.sums import LEAST
from murho.model.evaluation.judged_rows import (
    BAND,
    JudgedRows,
    RowArrays,
    RowWeights,
    equal_parts,
    means,
    scores_by_category,
    scores_of_part,
    standard_errors,
)
from murho.model.evaluation.recorded import crps_of_percentiles
from murho.model.files import JSON
from murho.model.predictive.plans import DrawnRows
from murho.model.tables.schema import Columns, Schema

COVERAGES = (50, 80, 90, 95)
"""Nominal coverage of the reported bands, per cent."""
ROUNDING = 1e-12
"""Standard deviation of a row, in parts of its mean, that can't be told from none."""
BAND_LEVELS = tuple(50.0 + side * coverage / 2.0 for coverage in COVERAGES for side in (-1.0, 1.0))
"""Lower and upper percentile of each of these bands, in that order: 25, 75, 10, 90 and so on."""
GRID_SHARES: Doubles = normal_cdf(torch.linspace(-5.0, 5.0, 41, dtype=torch.float64)).numpy()
GRID_LEVELS: list[float] = (100.0 * GRID_SHARES).tolist()
"""Percentiles from which the CRPS of a calibrated answer is integrated."""


@dataclass(frozen=True, slots=True)
class Bands(RowArrays):
    """Distributions of n rows in one kind of answer, raw or calibrated; the target's unit unless noted otherwise.

    Attributes:
        std: Standard deviation, ``[n]``.
        crps: Continuous ranked probability score, ``[n]``.
        pit: Probability integral transform of the target, ``[n]``.
        inside: Whether the target lies in each band of `COVERAGES`, ends included, ``[n, 4]``.
        ends: Percentiles at `BAND_LEVELS` minus the mean, in standard deviations, ``[n, 8]``; float32, as these are
            most of the memory.
    """

    std: Doubles
    crps: Doubles
    pit: Doubles
    inside: Bools
    ends: Floats

    @classmethod
    def around(cls, mean: Doubles, std: Doubles, ends: Doubles, crps: Doubles, pit: Doubles, inside: Bools) -> Bands:
        """Bands with these ends ``[n, 8]``, in the target's unit, around means ``[n]``."""
        # A row that is surely at a cap has no variance, and of what its ends differ from it only rounding errors.
        units = np.where(std > ROUNDING * np.abs(mean), std, np.inf)
        return cls(std, crps, pit, inside, ((ends - mean[:, None]) / units[:, None]).astype(np.float32))

    @property
    def from_mean(self) -> Doubles:
        """Percentiles at `BAND_LEVELS` minus the mean, ``[n, 8]``."""
        return self.ends * self.std[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedNumbers(JudgedRows):
    """Rows of a target that is a number; ``[n]``, in the target's unit unless noted otherwise.

    Attributes:
        mean: Predicted means.
        values: ``square`` and ``absolute`` error of the mean, ``nll`` (nats) and ``crps``, of the raw predictive.
        bands: The raw answers, and the calibrated ones if there is a calibration: ``raw``, ``calibrated``.
    """

    mean: Doubles
    values: dict[str, Doubles]
    bands: dict[str, Bands]

    @classmethod
    def of(
        cls,
        drawn: DrawnRows,
        rows: Ints,
        targets: Doubles,
        calibration: ConformalMap | None,
    ) -> Self:
        """Judge B rows under their draws.

        Args:
            drawn: The rows.
            rows: Their numbers, ``[B]``.
            targets: ``[B]``, the target's unit.
            calibration: Makes calibrated answers of raw ones; None: there are raw ones alone.
        """
        predictive, truth = cast("Predictive", drawn.predictive()), torch.from_numpy(targets).to(drawn.outputs.device)
        scores = predictive.normal_score(truth.unsqueeze(0))[0]
        mean, epistemic, aleatoric = predictive.moments
        error, variance = mean - truth, epistemic.square() + aleatoric.square()
        values = {"square": error.square(), "absolute": error.abs()}
        values |= {"nll": -predictive.log_density(truth), "crps": predictive.crps(truth)}
        scored = {name: numbers_of(of_rows) for name, of_rows in values.items()}

        bands: dict[str, Bands] = {}
        lines: dict[str, Doubles] = {}
        for kind, conformal in (("raw", None), ("calibrated", calibration)):
            if kind == "calibrated" and conformal is None:
                continue
            answer = drawn.observation((*BAND_LEVELS, *GRID_LEVELS), conformal)
            ends, grid = np.split(answer["percentiles"], [len(BAND_LEVELS)], axis=1)
            nominal = scores if conformal is None else conformal.nominal_of(scores, drawn.only_widen)
            inside = (targets[:, None] >= ends[:, 0::2]) & (targets[:, None] <= ends[:, 1::2])
            # Most of the error of lines between percentiles cancels in the ratio.
            line, raw = lines.setdefault(kind, crps_of_percentiles(grid, targets, GRID_SHARES)), lines["raw"]
            crps = scored["crps"] * np.divide(line, raw, out=np.ones_like(raw), where=raw > 0.0)
            bands[kind] = Bands.around(
                answer["mean"], answer["std"], ends, crps, numbers_of(normal_cdf(nominal)), inside
            )
        return cls(
            rows=rows,
            targets=targets,
            doubt=numbers_of(epistemic.square() / variance.clamp_min(LEAST)),
            mean=numbers_of(mean),
            values=scored,
            bands=bands,
        )

    @property
    def served(self) -> Bands:
        """The answers that are given: calibrated ones, if there is a calibration."""
        return self.bands.get("calibrated", self.bands["raw"])

    def report(self) -> JSON:
        """Return the scores of all rows.

        Returns:
            ``n``; ``rmse`` and ``mae``; ``r2``, the explained share of the variance of these targets,
            ``1 - mean(error^2) / Var(target)``, None if they are all the same; ``crps``, of what is served; ``nll``,
            of the raw predictive, because a calibration map has no density; ``raw`` and ``calibrated``, each with
            ``crps``, and ``coverage``, ``width`` and ``interval_score`` by nominal coverage (``{"50": …, "80": …}``);
            ``constant``, the ``crps`` of one answer for all rows; and ``standard_errors`` of ``rmse``, ``mae``,
            ``nll``, ``crps`` and the coverages.
        """
        rows, values = self.counts, self.values
        rmse = float(rows.mean(values["square"])) ** 0.5
        variance = float(rows.mean(np.square(self.targets - rows.mean(self.targets))))
        scored = {"mae": values["absolute"], "nll": values["nll"], "crps": self.served.crps}
        # The error of a root is by the delta method.
        errors = standard_errors(scored | {"rmse": values["square"] / max(2.0 * rmse, 1e-300)}, rows)
        kinds, covered = {}, {}
        for kind, bands in self.bands.items():
            kinds[kind] = self._of_bands(bands)
            covered[kind] = {"coverage": standard_errors(_by_coverage(bands.inside), rows)}
        return {
            "n": len(self),
            "rmse": rmse,
            **means(scored, rows),
            "r2": 1.0 - rmse**2 / variance if variance > 0.0 else None,
            "raw": kinds["raw"],
            "calibrated": kinds.get("calibrated"),
            "constant": {"crps": crps_of_constant(self.targets, rows)},
            "standard_errors": errors | covered,
        }

    def _of_bands(self, bands: Bands) -> JSON:
        """CRPS, and coverage, width and interval score of bands.

        The interval score (Winkler 1972; Gneiting & Raftery 2007, equation 43) of a band from l to u of nominal
        coverage c is ``u - l + 2 / (1 - c) * (distance of the target y from the band)``.
        """
        lower, upper = bands.from_mean[:, 0::2], bands.from_mean[:, 1::2]
        error = (self.targets - self.mean)[:, None]
        missed = np.maximum(lower - error, 0.0) + np.maximum(error - upper, 0.0)
        width = upper - lower
        score = width + 2.0 / (1.0 - np.array(COVERAGES) / 100.0) * missed
        values = {"coverage": bands.inside, "width": width, "interval_score": score}
        by_coverage = {name: means(_by_coverage(of_rows), self.counts) for name, of_rows in values.items()}
        return means({"crps": bands.crps}, self.counts) | by_coverage

    def in_full(self, schema: Schema, columns: Columns) -> JSON:
        """Return the report with more keys.

        Returns:
            `report` with `reliability` in ``raw`` and ``calibrated``, and ``independent``, as how many independent rows
            of equal weight these count; ``sharpness``, the root mean square of ``std``; ``epistemic_share``, the
            epistemic share of that mean square; ``spearman``, the rank correlation of ``std`` and the absolute error of
            the mean, without weights; ``coverage_by_std``, ten parts of equal numbers of rows by ``std``, in ascending
            order, each with ``std``, the smallest and the largest one, and ``rmse``, to compare with it; and
            ``coverage_by_category``. Parts have the coverage of the 90 % band, ``raw`` and, with a calibration,
            ``calibrated``.
        """
        rows, report, std = self.counts, self.report(), self.served.std
        for kind, bands in self.bands.items():
            report[kind]["reliability"] = reliability(bands.pit, rows)
        inside = {kind: bands.inside[:, COVERAGES.index(BAND)] for kind, bands in self.bands.items()}
        square, errors = float(rows.mean(std**2)), self.targets - self.mean
        return report | {
            "independent": rows.independent,
            "sharpness": square**0.5,
            "epistemic_share": float(rows.mean(self.doubt * std**2)) / square,
            "spearman": spearman(std, np.abs(errors)),
            "coverage_by_std": [
                {
                    "std": std[part[[0, -1]]].tolist(),
                    "rmse": float(rows.of_rows(part).mean(errors[part] ** 2)) ** 0.5,
                    **scores_of_part(inside, part, rows),
                }
                for part in equal_parts(std)
            ],
            "coverage_by_category": scores_by_category(inside, rows, schema, columns),
        }


def numbers_of(values: Tensor) -> Array:
    """Return the values as an array of their own."""
    return values.cpu().numpy().copy()


def _by_coverage(values: Array) -> dict[str, Array]:
    """Values of the four bands, ``[n, 4]``, by their nominal coverage: ``{"50": …, "80": …}``."""
    return dict(zip(map(str, COVERAGES), values.T, strict=True))


LEVELS = np.arange(1, 20) / 20.0
"""Levels of a reliability diagram: 5 %, 10 % and so on."""


def reliability(pit: Doubles, rows: RowWeights | None = None) -> JSON:
    """Observed shares of the targets below percentiles, and inside central bands, for a diagram.

    Args:
        pit: ``[N]``.
        rows: Weights of the rows; None: all are equal.

    Returns:
        ``quantiles`` and ``bands``, the shares at the levels 5, 10 … 95 %. ``bands`` does not show a bias of all
        predictions.
    """
    shares = (rows or RowWeights.of(len(pit))).shares
    return {
        name: np.bincount(np.searchsorted(LEVELS, uniform), shares, minlength=20).cumsum()[:19].tolist()
        for name, uniform in (("quantiles", pit), ("bands", np.abs(2.0 * pit - 1.0)))
    }


def spearman(first: Doubles, second: Doubles) -> float | None:
    """Spearman's rank correlation of two arrays ``[N]``, with mean ranks for ties; None if one array is constant."""
    ranks = []
    for values in (first, second):
        _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
        if len(counts) < 2:
            return None
        ranks.append((counts.cumsum() - 0.5 * counts)[place])
    return float(np.corrcoef(ranks)[0, 1])


def crps_of_constant(targets: Doubles, rows: RowWeights) -> float | None:
    """Return the mean CRPS of one answer for all rows: for each the empirical distribution of the other rows' targets.

    With the mean difference g of two targets, of n different rows, it is ``g n / (2 (n - 1))``.

    Args:
        targets: ``[n]``.
        rows: Their weights and units.

    Returns:
        The mean, in the targets' unit; None for a single unit.
    """
    order = np.argsort(targets)
    below = np.cumsum(rows.shares[order])[:-1]
    spread = 2.0 * float((below * (1.0 - below) * np.diff(targets[order])).sum())
    count = rows.independent
    return 0.5 * spread * (count / (count - 1.0)) ** 2 if count > 1.0 else None
