"""How a benchmark and a peer's script speak: a task and its answer, each a file of arrays.

The script is given a folder of tasks, ``NAME.npz``. For each it writes ``NAME.answer.npz`` and a line with NAME to
stdout, so that what is done is kept when a later task fails. Targets of the test rows are in no file.

A part of the training rows, the *inner* rows, is for early stopping and for the conformal correction. So a peer
answers with two models:

    base   fitted to the other rows, stopped by the inner ones: answers for the inner rows and the test rows, so
           that the correction learnt on the former holds for the latter;
    raw    what the peer alone would be used as, for the test rows: refitted to all training rows, inner ones
           included, for as many rounds as ``base`` was found to need, where that is affordable.

Where there is no refit, raw is base.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["REFIT_UP_TO", "Answer", "Features", "Predictive", "Task", "answer_tasks", "one_hot", "spread"]

REFIT_UP_TO = 10_000
"""Most training rows with which costly peers are refitted to all of them."""


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


@dataclass(frozen=True, slots=True)
class Task:
    """One split.

    Attributes:
        training: Training rows, N.
        target: Their targets, ``[N]``.
        inner: Which of them are held back for early stopping and conformal correction, ``[N]``.
        test: Rows to answer for, B.
        levels: Levels of the quantiles to answer with, rising, strictly between 0 and 1, ``[K]``.
        seed: Of whatever is random.
    """

    training: Features
    target: NDArray[np.float64]
    inner: NDArray[np.bool_]
    test: Features
    levels: NDArray[np.float64]
    seed: int

    def save(self, path: Path) -> None:
        """Writes it."""
        np.savez(
            path,
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
    def load(cls, path: Path) -> Task:
        """Reads what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            return cls(
                training=Features(file["training_numbers"], file["training_categories"]),
                target=file["target"],
                inner=file["inner"],
                test=Features(file["test_numbers"], file["test_categories"]),
                levels=file["levels"],
                seed=int(file["seed"]),
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


@dataclass(frozen=True, slots=True)
class Answer:
    """What a peer says of a task.

    Attributes:
        raw: Of the test rows; None of a peer that has no distribution without the conformal correction.
        base: Of the test rows, by the model that has not learnt from the inner rows.
        inner: Of the inner rows, by the same model.
        rounds: Iterations, epochs or the like that early stopping chose, for the record.
        seconds: Of fits and answers; set by `answer_tasks`.
    """

    raw: Predictive | None
    base: Predictive
    inner: Predictive
    rounds: float
    seconds: float = 0.0

    def save(self, path: Path) -> None:
        """Writes it, whole or not at all."""
        arrays: dict[str, NDArray[np.float64]] = {
            "rounds": np.array(self.rounds),
            "seconds": np.array(self.seconds),
        }
        for name in ("raw", "base", "inner"):
            predictive: Predictive | None = getattr(self, name)
            if predictive is None:
                continue
            for part in ("mean", "quantiles", "std"):
                values = getattr(predictive, part)
                if values is not None:
                    arrays[f"{name}_{part}"] = np.asarray(values, dtype=np.float64)
        temporary = path.with_suffix(".part")
        with temporary.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # savez has one more, named, argument
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path) -> Answer:
        """Reads what `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            parts = {
                name: Predictive(
                    file[f"{name}_mean"],
                    file.get(f"{name}_quantiles"),
                    file.get(f"{name}_std"),
                )
                for name in ("raw", "base", "inner")
                if f"{name}_mean" in file
            }
            return cls(
                parts.get("raw"), parts["base"], parts["inner"], float(file["rounds"]), float(file["seconds"])
            )


def answer_tasks(answer: Callable[[Task], Answer], arguments: Sequence[str] | None = None) -> None:
    """The script of a peer: answers every task of a folder, in the order of their names.

    Args:
        answer: Fits and answers.
        arguments: The folder; that of the command line by default.
    """
    (folder,) = sys.argv[1:] if arguments is None else arguments
    for path in sorted(Path(folder).glob("*.task.npz")):
        task = Task.load(path)
        began = time.perf_counter()
        said = answer(task)
        seconds = time.perf_counter() - began
        name = path.name.removesuffix(".task.npz")
        Answer(said.raw, said.base, said.inner, said.rounds, seconds).save(
            path.with_name(f"{name}.answer.npz")
        )
        sys.stdout.write(f"{name}{os.linesep}")
        sys.stdout.flush()


def one_hot(codes: NDArray[np.int64], known: int) -> NDArray[np.float64]:
    """One column a known code; missing and unseen ones have zeros, ``[B, known]``."""
    return np.asarray(codes[:, None] == np.arange(known), dtype=np.float64)


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
