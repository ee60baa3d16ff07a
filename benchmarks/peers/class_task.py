"""The task of the classification benchmark: to predict class probabilities for the test rows of a split.

As in `benchmarks.peers.table_task`, part of the training rows, the *inner* rows, is for early stopping and for the
calibration, and a peer predicts with two models: ``base``, fitted to the other rows, for inner and test rows, and
``raw``, refitted to all training rows where that is affordable, for the test rows. `calibration_session` is the
script's side of a calibration by a library: a map is fitted to the probabilities of the inner rows, and applied to
those of the test rows.

No process gets the classes of the test rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.peers.table_task import Features, pack, table_session, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks.peers.exchange import Session

__all__ = ["Calibrated", "ClassAnswer", "ClassTask", "ToCalibrate", "calibration_session", "classes_session"]


@dataclass(frozen=True, slots=True)
class ClassTask:
    """One split.

    Attributes:
        training: Training rows, N.
        labels: Class of each training row, ``[N]``, from 0 to C - 1; each class has a row that is no inner row.
        inner: Mask of the inner rows, held back for early stopping and calibration, ``[N]``.
        test: Rows to predict, B.
        seed: Seed of all random numbers.
    """

    training: Features
    labels: NDArray[np.int64]
    inner: NDArray[np.bool_]
    test: Features
    seed: int

    @property
    def classes(self) -> int:
        """C."""
        return int(self.labels.max()) + 1

    def packed(self) -> str:
        """The task as text, for a line of JSON."""
        return pack(
            training_numbers=self.training.numbers,
            training_categories=self.training.categories,
            labels=self.labels,
            inner=self.inner,
            test_numbers=self.test.numbers,
            test_categories=self.test.categories,
            seed=self.seed,
        )

    @classmethod
    def unpacked(cls, text: str) -> ClassTask:
        """The task from the output of `packed`."""
        arrays = unpack(text)
        return cls(
            training=Features(arrays["training_numbers"], arrays["training_categories"]),
            labels=arrays["labels"],
            inner=arrays["inner"],
            test=Features(arrays["test_numbers"], arrays["test_categories"]),
            seed=int(arrays["seed"]),
        )


@dataclass(frozen=True, slots=True)
class ClassAnswer:
    """The probabilities that a peer gives for a task.

    Attributes:
        raw: Of the test rows, by the raw model, ``[B, C]``.
        base: Of the test rows, by the base model, which was not fitted to the inner rows, ``[B, C]``.
        inner: Of the n inner rows, by the base model, ``[n, C]``.
        rounds: Iterations or epochs that early stopping chose, for the record.
    """

    raw: NDArray[np.float64]
    base: NDArray[np.float64]
    inner: NDArray[np.float64]
    rounds: float

    def packed(self) -> str:
        """The answer as text, for a line of JSON."""
        three = {name: np.asarray(getattr(self, name), dtype=np.float64) for name in ("raw", "base", "inner")}
        return pack(**three, rounds=self.rounds)

    @classmethod
    def unpacked(cls, text: str) -> ClassAnswer:
        """The answer from the output of `packed`."""
        arrays = unpack(text)
        return cls(arrays["raw"], arrays["base"], arrays["inner"], float(arrays["rounds"]))


@dataclass(frozen=True, slots=True)
class ToCalibrate:
    """What a calibration is fitted to, and what it is applied to.

    Attributes:
        inner: Probabilities of n rows, ``[n, C]``.
        labels: Their classes, ``[n]``.
        test: Probabilities of B rows, ``[B, C]``.
    """

    inner: NDArray[np.float64]
    labels: NDArray[np.int64]
    test: NDArray[np.float64]

    def packed(self) -> str:
        """As text, for a line of JSON."""
        return pack(inner=self.inner, labels=self.labels, test=self.test)

    @classmethod
    def unpacked(cls, text: str) -> ToCalibrate:
        """From the output of `packed`."""
        arrays = unpack(text)
        return cls(arrays["inner"], arrays["labels"], arrays["test"])


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Calibrated probabilities of the test rows, ``[B, C]``."""

    probabilities: NDArray[np.float64]

    def packed(self) -> str:
        """As text, for a line of JSON."""
        return pack(probabilities=np.asarray(self.probabilities, dtype=np.float64))

    @classmethod
    def unpacked(cls, text: str) -> Calibrated:
        """From the output of `packed`."""
        return cls(unpack(text)["probabilities"])


def classes_session(answer: Callable[..., ClassAnswer]) -> Session:
    """The session of a peer's script; see `benchmarks.peers.table_task.table_session`."""
    return table_session(answer, ClassTask.unpacked)


def calibration_session(calibrate: Callable[[ToCalibrate], Calibrated]) -> Session:
    """The session of a script that calibrates, given a `ToCalibrate`."""

    def answer(task: ToCalibrate, **_: Any) -> Calibrated:
        return calibrate(task)

    return table_session(answer, ToCalibrate.unpacked)
