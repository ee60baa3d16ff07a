"""The task of the table benchmark: to predict distributions of the target for the test rows of a split.

Part of the training rows, the *inner* rows, is for early stopping and for the conformal correction. So a peer predicts
with two models:

    base   fitted to the other training rows, stopped by the inner rows. It predicts the inner rows and the test rows,
           so that the correction from the inner rows holds for the test rows.
    raw    the model without conformal correction, for the test rows. It is refitted to all training rows, for as many
           rounds as ``base`` needed, if that is affordable; otherwise it is ``base``.

No process gets the targets of the test rows.
"""

from __future__ import annotations

import base64
import io
import json
import time
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from numpy.typing import ArrayLike, NDArray

    from benchmarks.peers.exchange import Session

__all__ = [
    "FITTED_LEVELS",
    "REFIT_UP_TO",
    "Answer",
    "Features",
    "Predictive",
    "TableTask",
    "pack",
    "spread",
    "table_session",
    "unpack",
]

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

    numbers: NDArray[np.float64]
    categories: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Features:
        """The rows of a mask ``[B]``, or of row numbers."""
        return Features(self.numbers[rows], self.categories[rows])

    def joined(self) -> NDArray[np.float64]:
        """Numbers, then codes, ``[B, D]``; missing codes as NaN."""
        codes = np.where(self.categories < 0, np.nan, self.categories.astype(np.float64))
        return np.hstack([self.numbers, codes])

    def one_hot(self, training: Features) -> NDArray[np.float64]:
        """One column per code of each feature in the training rows; missing and unseen codes are zeros."""
        known = training.categories.max(axis=0, initial=-1) + 1
        columns = [self.categories[:, [place]] == np.arange(count) for place, count in enumerate(known)]
        return np.hstack([np.zeros((len(self), 0)), *columns])


@dataclass(frozen=True, slots=True)
class TableTask:
    """One split.

    Attributes:
        training: Training rows, N.
        target: Targets of the training rows, ``[N]``.
        inner: Mask of the inner rows, held back for early stopping and conformal correction, ``[N]``.
        test: Rows to predict, B.
        levels: Levels of the predicted quantiles, rising, strictly between 0 and 1, ``[K]``.
        seed: Seed of all random numbers.
    """

    training: Features
    target: NDArray[np.float64]
    inner: NDArray[np.bool_]
    test: Features
    levels: NDArray[np.float64]
    seed: int

    def packed(self) -> str:
        """The task as text, for a line of JSON."""
        return pack(
            training_numbers=self.training.numbers,
            training_categories=self.training.categories,
            target=self.target,
            inner=self.inner,
            test_numbers=self.test.numbers,
            test_categories=self.test.categories,
            levels=self.levels,
            seed=self.seed,
        )

    @classmethod
    def unpacked(cls, text: str) -> TableTask:
        """The task from the output of `packed`."""
        arrays = unpack(text)
        return cls(
            training=Features(arrays["training_numbers"], arrays["training_categories"]),
            target=arrays["target"],
            inner=arrays["inner"],
            test=Features(arrays["test_numbers"], arrays["test_categories"]),
            levels=arrays["levels"],
            seed=int(arrays["seed"]),
        )


@dataclass(frozen=True, slots=True)
class Predictive:
    """Predictive distributions of B rows, in the target's unit.

    Attributes:
        mean: ``[B]``.
        quantiles: Quantiles at the task's levels, ``[B, K]``; None for Normals.
        std: Standard deviations, of Normals or for a conformal correction that scales, ``[B]``; None if the conformal
            correction is additive.
    """

    mean: NDArray[np.float64]
    quantiles: NDArray[np.float64] | None = None
    std: NDArray[np.float64] | None = None

    @classmethod
    def of_fitted(cls, values: NDArray[np.float64], levels: NDArray[np.float64]) -> Predictive:
        """Distributions from quantiles at `FITTED_LEVELS`, ``[B, L]``; the mean is the mean of the K quantiles."""
        quantiles = spread(FITTED_LEVELS, values, levels)
        return cls(mean=quantiles.mean(axis=1), quantiles=quantiles)


@dataclass(frozen=True, slots=True)
class Answer:
    """The predictions of a peer for a task.

    Attributes:
        raw: Test rows, by the raw model; None for a peer that has no distribution without the conformal correction.
        base: Test rows, by the base model, which was not fitted to the inner rows.
        inner: Inner rows, by the base model.
        rounds: Iterations or epochs that early stopping chose, for the record.
    """

    raw: Predictive | None
    base: Predictive
    inner: Predictive
    rounds: float

    def packed(self) -> str:
        """The answer as text, for a line of JSON."""
        arrays: dict[str, ArrayLike] = {"rounds": self.rounds}
        for name in ("raw", "base", "inner"):
            for part in ("mean", "quantiles", "std"):
                if (values := getattr(getattr(self, name), part, None)) is not None:
                    arrays[f"{name}_{part}"] = np.asarray(values, dtype=np.float64)
        return pack(**arrays)

    @classmethod
    def unpacked(cls, text: str) -> Answer:
        """The answer from the output of `packed`."""
        arrays = unpack(text)
        raw, base, inner = (
            Predictive(arrays[f"{name}_mean"], arrays.get(f"{name}_quantiles"), arrays.get(f"{name}_std"))
            if f"{name}_mean" in arrays
            else None
            for name in ("raw", "base", "inner")
        )
        if base is None or inner is None:
            raise ValueError("an answer has base and inner")
        return cls(raw, base, inner, float(arrays["rounds"]))


def pack(**arrays: ArrayLike) -> str:
    """Named arrays as text, for a line of JSON."""
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]  # savez also has a keyword argument of another type
    return base64.b64encode(file.getvalue()).decode()


def unpack(text: str) -> Mapping[str, NDArray[Any]]:
    """The arrays from the output of `pack`."""
    with np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False) as file:
        return dict(file)


def table_session(answer: Callable[..., Any], read: Callable[[str], Any] = TableTask.unpacked) -> Session:
    """The session of a script in a benchmark on tables.

    Each request has a ``task``; the reply has the ``answer`` and the ``seconds`` of fits and predictions.

    Args:
        answer: Fits and predicts, given a task and, by name, the options of the peer; its answer is ``packed``.
        read: Makes the task of its text.
    """

    def session(text: str) -> Generator[dict[str, Any], dict[str, Any], None]:
        options, reply = json.loads(text), dict[str, Any]()
        while True:
            request = yield reply
            task = read(request["task"])
            began = time.perf_counter()
            answered = answer(task, **options)
            reply = {"seconds": time.perf_counter() - began, "answer": answered.packed()}

    return session


def spread(
    fitted: NDArray[np.float64], values: NDArray[np.float64], levels: NDArray[np.float64]
) -> NDArray[np.float64]:
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
