"""The task of the table benchmark: to answer for the test rows of a split with distributions of the target.

A part of the training rows, the *inner* rows, is for early stopping and for the conformal correction. So a peer
answers with two models:

    base   fitted to the other rows, stopped by the inner ones: answers for the inner rows and the test rows, so
           that the correction learnt on the former holds for the latter;
    raw    what the peer alone would be used as, for the test rows: refitted to all training rows, inner ones
           included, for as many rounds as ``base`` was found to need, where that is affordable.

Where there is no refit, raw is base. No process is told the targets of the test rows.
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
    "spread",
    "table_session",
]

REFIT_UP_TO = 10_000
"""Most training rows with which costly peers are refitted to all of them."""
FITTED_LEVELS = np.array([1, 2.5, *range(5, 100, 5), 97.5, 99]) / 100.0
"""Levels for which models of quantiles are fitted; `spread` gives those between."""


@dataclass(frozen=True, slots=True)
class Features:
    """Rows as they are in the table.

    Attributes:
        numbers: Numeric features, ``[B, numeric D]``, NaN where missing.
        categories: Codes of categorical features, ``[B, categorical D]``, from 0, -1 where missing; those unseen
            in training have codes above all seen ones.
    """

    numbers: NDArray[np.float64]
    categories: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: NDArray[np.bool_]) -> Features:
        """Some of the rows, ``[B]``."""
        return Features(self.numbers[rows], self.categories[rows])

    def joined(self) -> NDArray[np.float64]:
        """Numbers, then codes, ``[B, D]``; missing codes as NaN."""
        codes = np.where(self.categories < 0, np.nan, self.categories.astype(np.float64))
        return np.hstack([self.numbers, codes])

    def one_hot(self, training: Features) -> NDArray[np.float64]:
        """A column for each code of each category in the training rows; missing and unseen codes have zeros."""
        known = training.categories.max(axis=0, initial=-1) + 1
        columns = [self.categories[:, [place]] == np.arange(count) for place, count in enumerate(known)]
        return np.hstack([np.zeros((len(self), 0)), *columns])


@dataclass(frozen=True, slots=True)
class TableTask:
    """One split.

    Attributes:
        training: Training rows, N.
        target: Their targets, ``[N]``.
        inner: Which of them are held back for early stopping and conformal correction, ``[N]``.
        test: Rows to answer for, B.
        levels: Levels of the quantiles to answer with, rising, strictly between 0 and 1, ``[K]``.
        seed: Of everything random.
    """

    training: Features
    target: NDArray[np.float64]
    inner: NDArray[np.bool_]
    test: Features
    levels: NDArray[np.float64]
    seed: int

    def packed(self) -> str:
        """As text, for a line of JSON."""
        return _packed(
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
        """Reads what `packed` wrote."""
        said = _unpacked(text)
        return cls(
            training=Features(said["training_numbers"], said["training_categories"]),
            target=said["target"],
            inner=said["inner"],
            test=Features(said["test_numbers"], said["test_categories"]),
            levels=said["levels"],
            seed=int(said["seed"]),
        )


@dataclass(frozen=True, slots=True)
class Predictive:
    """Distributions of the target of B rows, in its unit.

    Attributes:
        mean: ``[B]``.
        quantiles: At the task's levels, ``[B, K]``; None for Normals, which need none.
        std: Of Normals, or of what stands in for them where the conformal correction scales, ``[B]``; None where
            a quantile is corrected by an addend.
    """

    mean: NDArray[np.float64]
    quantiles: NDArray[np.float64] | None = None
    std: NDArray[np.float64] | None = None

    @classmethod
    def of_fitted(cls, values: NDArray[np.float64], levels: NDArray[np.float64]) -> Predictive:
        """From quantiles at `FITTED_LEVELS`, ``[B, L]``; the mean is that of the quantiles at the task's levels."""
        quantiles = spread(FITTED_LEVELS, values, levels)
        return cls(mean=quantiles.mean(axis=1), quantiles=quantiles)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a peer says of a task.

    Attributes:
        raw: Of the test rows; None of a peer that has no distribution without the conformal correction.
        base: Of the test rows, by the model that has not learnt from the inner rows.
        inner: Of the inner rows, by the same model.
        rounds: Iterations, epochs or the like that early stopping chose, for the record.
    """

    raw: Predictive | None
    base: Predictive
    inner: Predictive
    rounds: float

    def packed(self) -> str:
        """As text, for a line of JSON."""
        arrays: dict[str, ArrayLike] = {"rounds": self.rounds}
        for name in ("raw", "base", "inner"):
            for part in ("mean", "quantiles", "std"):
                if (values := getattr(getattr(self, name), part, None)) is not None:
                    arrays[f"{name}_{part}"] = np.asarray(values, dtype=np.float64)
        return _packed(**arrays)

    @classmethod
    def unpacked(cls, text: str) -> Answer:
        """Reads what `packed` wrote."""
        said = _unpacked(text)
        raw, base, inner = (
            Predictive(said[f"{name}_mean"], said.get(f"{name}_quantiles"), said.get(f"{name}_std"))
            if f"{name}_mean" in said
            else None
            for name in ("raw", "base", "inner")
        )
        if base is None or inner is None:
            raise ValueError("an answer has base and inner")
        return cls(raw, base, inner, float(said["rounds"]))


def _packed(**arrays: ArrayLike) -> str:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]  # savez has one more, named, argument
    return base64.b64encode(file.getvalue()).decode()


def _unpacked(text: str) -> Mapping[str, NDArray[Any]]:
    with np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False) as file:
        return dict(file)


def table_session(answer: Callable[..., Answer]) -> Session:
    """What a script does in the table benchmark.

    Each request is a ``task``; it is answered with an ``answer`` and the ``seconds`` of fits and answers.

    Args:
        answer: Fits and answers, given a `TableTask` and, by name, the options of the peer.
    """

    def session(text: str) -> Generator[dict[str, Any], dict[str, Any], None]:
        options, said = json.loads(text), dict[str, Any]()
        while True:
            request = yield said
            task = TableTask.unpacked(request["task"])
            began = time.perf_counter()
            answered = answer(task, **options)
            said = {"seconds": time.perf_counter() - began, "answer": answered.packed()}

    return session


def spread(
    fitted: NDArray[np.float64], values: NDArray[np.float64], levels: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Quantiles at many levels from those at a few, by straight lines on the scale of Normal scores.

    Args:
        fitted: Levels that were fitted, rising, ``[L]``; they reach as far out as ``levels``.
        values: Quantiles at them, ``[B, L]``; put in rising order first (Chernozhukov et al. 2010).
        levels: ``[K]``.

    Returns:
        ``[B, K]``.
    """
    normal = NormalDist()
    known, wanted = (np.array([normal.inv_cdf(float(level)) for level in some]) for some in (fitted, levels))
    ordered = np.sort(values, axis=1)
    right = np.clip(np.searchsorted(known, wanted), 1, len(known) - 1)
    share = (wanted - known[right - 1]) / (known[right] - known[right - 1])
    return np.asarray(ordered[:, right - 1] * (1.0 - share) + ordered[:, right] * share)
