"""What rows add to totals: their moments under each draw, and the sums of these over groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from murho.model.distributions.sums import LEAST, exceeding
from murho.model.errors import OptionError
from murho.model.predictive.prediction import AnyPrediction, Prediction

Doubles: TypeAlias = NDArray[np.float64]


_MOST_STRETCH = 1e100


@dataclass(frozen=True, slots=True)
class RowMoments:
    """What B rows add to totals, each with C classes; C is 1 for a number.

    Attributes:
        mean: Of the answers, ``[B, C]``, as the next two.
        epistemic: Epistemic standard deviation.
        aleatoric: Standard deviation of the noise.
        third: Third central moment of the noise, ``[B, C]``.
        imputed: Variance of what the missing cells of a row may be, a part of ``epistemic^2``, ``[B, C]``.
        values: Means under each draw, averaged over these, ``[B, S, C]``, up to a constant of the row.
        variances: Variances of the noise under each draw, likewise.
        stretch: Factors of values and variances that make them those of the answer, ``[2, B]``.
        unlike: Whether each row is unlike the training rows, ``[B]``.
    """

    mean: Doubles
    epistemic: Doubles
    aleatoric: Doubles
    third: Doubles
    imputed: Doubles
    values: Doubles
    variances: Doubles
    stretch: Doubles
    unlike: Doubles

    @classmethod
    def of(cls, answer: AnyPrediction, threshold: float | None = None) -> Self:
        """From the answers for rows: of a number, of whether it exceeds a threshold, or of classes.

        Raises:
            OptionError: There are no draws, and a threshold.
        """
        rows, unlike = len(answer), answer.extrapolation.astype(np.float64)
        number = answer if isinstance(answer, Prediction) else None
        mean = number.mean[:, None] if number is not None else answer.probabilities  # type: ignore[union-attr]
        if answer.samples == 0:
            if threshold is not None:
                raise OptionError("--samples: count_above needs draws; use 1 or more")
            zero, none = 0.0 * mean, np.zeros((rows, 0, mean.shape[1]))
            return cls(mean, zero, zero, zero, zero, none, none, np.ones((2, rows)), unlike)
        draws = answer.draws
        assert draws is not None  # noqa: S101 - asked for
        functions = draws if answer.functions is None else answer.functions
        if number is None or threshold is not None:
            if number is not None and threshold is not None:
                mean = np.asarray(number.exceedance)
                imputed = np.maximum(draws.var(axis=1) - functions.var(axis=1), 0.0)
                moments = functions, np.asarray(number.variances) + imputed[:, None], np.asarray(number.third)
                draws = functions = exceeding(*moments, threshold, mean)[..., None]
            variances = functions * (1.0 - functions)
            third = (variances * (1.0 - 2.0 * functions)).mean(axis=1)
            epistemic = draws.std(axis=1)
            aleatoric = np.sqrt(np.maximum(mean * (1.0 - mean) - epistemic**2, 0.0))
            imputed = np.maximum(epistemic**2 - functions.var(axis=1), 0.0)
            return cls(mean, epistemic, aleatoric, third, imputed, functions, variances, np.ones((2, rows)), unlike)
        variances, third = np.asarray(number.variances), np.asarray(number.third)
        epistemic, aleatoric = np.asarray(number.epistemic_std), np.asarray(number.aleatoric_std)
        raw = np.maximum(variances.mean(axis=1), LEAST)
        stretch = np.array([epistemic / np.maximum(draws.std(axis=1), LEAST), aleatoric**2 / raw])
        stretch = np.minimum(stretch, _MOST_STRETCH)  # of a row that is surely at a cap there is nothing to stretch
        third = third * stretch[1] ** 1.5
        return cls(
            mean,
            epistemic[:, None],
            aleatoric[:, None],
            third[:, None],
            np.maximum(epistemic**2 - stretch[0] ** 2 * functions.var(axis=1), 0.0)[:, None],
            functions[..., None],
            variances[..., None],
            stretch,
            unlike,
        )

    def add_up(self, index: NDArray[np.int64], weight: Doubles, groups: int) -> tuple[Doubles, Doubles]:
        """Return the sums of G groups: ``[2, S, G, C]`` of draws, and ``[6, G, C]`` of `_Group.sums`.

        Args:
            index: Number of each row's group, ``[B]``.
            weight: ``[B]``.
            groups: G.
        """
        rows, (samples, classes) = len(index), self.values.shape[1:]
        places = np.stack([index, np.arange(rows)])
        sums = []
        for factors, values in zip((weight, weight**2) * self.stretch, (self.values, self.variances), strict=True):
            matrix = torch.sparse_coo_tensor(
                torch.from_numpy(places), torch.from_numpy(factors), (groups, rows), check_invariants=False
            )
            product = torch.sparse.mm(matrix, torch.from_numpy(values.reshape(rows, samples * classes)))
            sums.append(product.numpy().reshape(groups, samples, classes).transpose(1, 0, 2))
        w = weight[:, None]
        of_rows = (w * self.mean, (w * self.epistemic) ** 2, (w * self.aleatoric) ** 2, w**3 * self.third)
        added = [
            np.stack([np.bincount(index, each, groups) for each in part.T], axis=1)
            for part in (*of_rows, w * self.aleatoric, w**2 * self.imputed)
        ]
        return np.stack(sums), np.stack(added)
