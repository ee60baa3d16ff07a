"""The task of a peer on a table: to predict distributions of the target, or class probabilities, for test rows.

Part of the training rows, the *inner* rows, is for early stopping and for the conformal correction or calibration. So a
peer predicts with two models:

    base   fitted to the other training rows, stopped by the inner rows. It predicts the inner rows and the test rows,
           so that the correction from the inner rows holds for the test rows.
    raw    the model without correction, for the test rows. It is refitted to all training rows, for as many rounds as
           ``base`` needed, if that is affordable; otherwise it is ``base``.

No process gets the targets of the test rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks.peers.exchange import Session
    from murho.model.arrays import Bools, Doubles, Ints

REFIT_UP_TO = 10_000
"""Most training rows at which costly peers are refitted to all training rows."""
FITTED_LEVELS = np.array([1, 2.5, *range(5, 100, 5), 97.5, 99]) / 100.0
"""Levels of quantile models; `spread` interpolates between them."""


@dataclass(frozen=True, slots=True)
class Features:
    """Features of rows, before any encoding by a peer.

    Attributes:
        numbers: Numeric features, ``[B, numeric D]``, NaN where missing.
        categories: Codes of categorical features, ``[B, categorical D]``, from 0, -1 where missing; codes of categories
            unseen in training are above all seen ones.
    """

    numbers: Doubles
    categories: Ints

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: Bools | Ints) -> Features:
        """Return the rows of a mask ``[B]``, or of row numbers."""
        return Features(self.numbers[rows], self.categories[rows])

    def joined(self) -> Doubles:
        """Numbers, then codes, ``[B, D]``; missing codes as NaN."""
        codes = np.where(self.categories < 0, np.nan, self.categories.astype(np.float64))
        return np.hstack([self.numbers, codes])

    def one_hot(self, training: Features) -> Doubles:
        """One column per code of each feature in the training rows; missing and unseen codes are zeros."""
        known = training.categories.max(axis=0, initial=-1) + 1
        columns = [self.categories[:, [place]] == np.arange(count) for place, count in enumerate(known)]
        return np.hstack([np.zeros((len(self), 0)), *columns])


@dataclass(frozen=True, slots=True)
class TableTask:
    """One split.

    Attributes:
        training: Training rows, N.
        target: Targets of the training rows, ``[N]``, or their classes from 0 to C - 1, each of which has a row that is
            no inner row.
        inner: Mask of the inner rows, held back for early stopping and correction, ``[N]``.
        test: Rows to predict, B.
        levels: Levels of the predicted quantiles, rising, strictly between 0 and 1, ``[K]``.
        seed: Seed of all random numbers.
    """

    training: Features
    target: NDArray[Any]
    inner: Bools
    test: Features
    levels: Doubles
    seed: int

    def standardised(self, *, indicators: bool) -> tuple[Doubles, Doubles]:
        """Return training and test inputs: numbers and one-hot categories of mean 0 and variance 1, 0 where missing.

        Args:
            indicators: Whether a column of its own says where a number is missing.
        """
        gaps = np.isnan(self.training.numbers).any(axis=0) & indicators
        rows, test = (
            np.hstack([features.numbers, np.isnan(features.numbers[:, gaps]), features.one_hot(self.training)])
            for features in (self.training, self.test)
        )
        location, scale = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
        scale = np.where(scale > 0.0, scale, 1.0)
        return np.nan_to_num((rows - location) / scale), np.nan_to_num((test - location) / scale)


@dataclass(frozen=True, slots=True)
class Predictive:
    """Predictive distributions of B rows, in the target's unit.

    Attributes:
        mean: ``[B]``.
        quantiles: Quantiles at the task's levels, ``[B, K]``; None for Normals.
        std: Standard deviations, of Normals or for a conformal correction that scales, ``[B]``; None if the conformal
            correction is additive.
    """

    mean: Doubles
    quantiles: Doubles | None = None
    std: Doubles | None = None

    @classmethod
    def of_fitted(cls, values: Doubles, levels: Doubles) -> Predictive:
        """Distributions from quantiles at `FITTED_LEVELS`, ``[B, L]``; the mean is the mean of the K quantiles."""
        quantiles = spread(FITTED_LEVELS, values, levels)
        return cls(mean=quantiles.mean(axis=1), quantiles=quantiles)


@dataclass(frozen=True, slots=True)
class Answer:
    """The predictions of a peer: distributions, or class probabilities ``[B, C]``.

    Attributes:
        raw: Test rows, by the raw model; None for a peer that has no distribution without the conformal correction.
        base: Test rows, by the base model, which was not fitted to the inner rows.
        inner: Inner rows, by the base model.
    """

    raw: Any
    base: Any
    inner: Any


def table_session(answer: Callable[..., Any]) -> Session:
    """Run the session of a script: each request is a task, and the reply has its ``answer`` and its ``seconds``.

    Args:
        answer: Fits and predicts, given a task.
    """

    def session(_: object) -> tuple[None, Callable[[Any], dict[str, Any]]]:
        def reply(task: Any) -> dict[str, Any]:
            began = time.perf_counter()
            return {"answer": answer(task), "seconds": time.perf_counter() - began}

        return None, reply

    return session


def spread(fitted: Doubles, values: Doubles, levels: Doubles) -> Doubles:
    """Quantiles at K levels, interpolated linearly between L fitted ones on the scale of Normal scores.

    Args:
        fitted: Fitted levels, rising, ``[L]``; they cover the range of ``levels``.
        values: Quantiles at the fitted levels, ``[B, L]``; sorted first (Chernozhukov et al. 2010).
        levels: ``[K]``.

    Returns:
        ``[B, K]``.
    """
    normal = NormalDist()
    known, wanted = (np.array([normal.inv_cdf(float(level)) for level in part]) for part in (fitted, levels))
    ordered = np.sort(values, axis=1)
    right = np.clip(np.searchsorted(known, wanted), 1, len(known) - 1)
    share = (wanted - known[right - 1]) / (known[right] - known[right - 1])
    return np.asarray(ordered[:, right - 1] * (1.0 - share) + ordered[:, right] * share)
