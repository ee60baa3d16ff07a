"""`ClassDistribution`: the predictive distributions of a target that is one of several classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from murho.model.python_interface.asked_rows import probability_levels
from murho.model.python_interface.distribution import SHOWN, Distribution, require_sample_size
from murho.model.python_interface.value_errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from murho.model.python_interface.asked_rows import AskedRows

__all__ = ["ClassDistribution"]


class ClassDistribution(Distribution):
    """The probability of each of C classes, for each of B rows; calibrated if the model has a calibration.

    Attributes:
        classes: The classes, ``[C]``, in the order of all answers.
    """

    def __init__(
        self, rows: AskedRows, classes: NDArray[Any] | None = None, places: NDArray[np.intp] | None = None
    ) -> None:
        """Describe the class of rows; nothing is computed before it is asked for.

        Args:
            rows: The rows.
            classes: Names for the classes, ``[C]``; by default the model's own, which are sorted texts.
            places: Index of each of these among the model's classes, ``[C]``; None: they have the same order.
        """
        own = rows.posterior.schema.target.classes or ()
        super().__init__(rows)
        self.classes: NDArray[Any] = np.array(own) if classes is None else classes
        self._places = np.arange(len(own)) if places is None else places

    def __getitem__(self, rows: Any) -> ClassDistribution:
        """The distributions of some rows, by a number, a slice, a mask or numbers."""
        return ClassDistribution(self._rows.of_rows(rows), self.classes, self._places)

    def __repr__(self) -> str:
        likeliest, most = self.mode(), self.probabilities.max(axis=1)
        shown = [f"{name} {share:.0%}" for name, share in zip(likeliest[:SHOWN], most[:SHOWN], strict=True)]
        more = ", …" if len(self) > SHOWN else ""
        return f"<{self._rows.posterior.schema.target.name} of {len(self)} rows: {', '.join(shown)}{more}>"

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Probabilities of the classes, ``[B, C]``, of sum 1."""
        return self._by_class(self._rows.plain.probabilities)

    def probability(self, label: Any) -> NDArray[np.float64]:
        """Probability of one class, ``[B]``.

        Raises:
            ParameterError: There is no such class.
        """
        places = [place for place, name in enumerate(self.classes.tolist()) if name == label]
        if not places:
            shown = ", ".join(repr(name) for name in self.classes[:10].tolist()) + (
                ", …" if len(self.classes) > 10 else ""
            )
            raise ParameterError(f"label: {label!r} is none of the {len(self.classes)} classes ({shown})")
        return self.probabilities[:, places[0]]

    def mode(self) -> NDArray[Any]:
        """The likeliest class, ``[B]``."""
        likeliest: NDArray[Any] = self.classes[self.probabilities.argmax(axis=1)]
        return likeliest

    def epistemic(self) -> NDArray[np.float64]:
        """Standard deviation of each class's probability over draws, which more training rows reduce, ``[B, C]``."""
        return self._by_class(self._drawn("epistemic_std"))

    def entropy(self) -> NDArray[np.float64]:
        """Entropy of the probabilities in nats, ``[B]``: 0 for a certain class, ``log(C)`` where nothing is known."""
        return self._drawn("entropy")

    def epistemic_entropy(self) -> NDArray[np.float64]:
        """The part of the entropy that more training rows reduce, in nats, ``[B]``.

        It is the mutual information of class and weights (Houlsby et al. 2011, arXiv:1112.5745).
        """
        return self._drawn("epistemic_entropy")

    def aleatoric_entropy(self) -> NDArray[np.float64]:
        """The rest of the entropy, ``[B]``: that which is expected of a draw, in nats."""
        return self.entropy() - self.epistemic_entropy()

    def interval(self, confidence: float = 0.9) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper end of the central interval of each class's probability over draws.

        Args:
            confidence: Share of the draws between the two, strictly between 0 and 1.

        Returns:
            Both ends, ``[B, C]`` each.

        Raises:
            ParameterError: The share lies elsewhere, or there are no draws.
        """
        self._rows.require_draws("interval")
        (share,) = probability_levels(np.array([confidence], dtype=np.float64), "confidence").tolist()
        answer = self._rows.answer(percentiles=(50.0 * (1.0 - share), 50.0 * (1.0 + share)))
        lower, upper = (self._by_class(answer.percentiles[:, :, side]) for side in (0, 1))
        return lower, upper

    def prediction_set(self, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Whether each class is in the set that holds the class with a probability, ``[B, C]``, bool; never empty.

        Args:
            coverage: The probability, strictly between 0 and 1.

        Raises:
            ParameterError: The coverage lies elsewhere, or there are no draws.
        """
        self._rows.require_draws("prediction sets")
        (share,) = probability_levels(np.array([coverage], dtype=np.float64), "coverage").tolist()
        inside: NDArray[np.bool_] = self._rows.answer(coverage=share).prediction_set[:, self._places]
        return inside

    def sample(self, n: int = 1, *, seed: int | np.random.Generator | None = None) -> NDArray[Any]:
        """Classes drawn with their probabilities, independently.

        Args:
            n: Classes for each row.
            seed: A number gives the same classes each time; None: others each time.

        Returns:
            ``[n, B]``.

        Raises:
            ParameterError: n is no whole number from 1.
        """
        require_sample_size(n)
        levels = np.random.default_rng(seed).random((n, len(self)))
        upper = self.probabilities.cumsum(axis=1)
        codes = np.stack([np.searchsorted(ends, row, side="right") for ends, row in zip(upper, levels.T, strict=True)])
        drawn: NDArray[Any] = self.classes[np.minimum(codes.T, len(self.classes) - 1)]
        return drawn

    def functions(self) -> NDArray[np.float64]:
        """Probabilities of the classes under each of the posterior's draws, ``[B, S, C]``.

        Draw k is the same function for all rows and calls, so that differences between rows mean something.

        Raises:
            ParameterError: There are no draws.
        """
        self._rows.require_draws("functions")
        return self._by_class(self._rows.answer(draws=True).draws)

    def _by_class(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Values ``[..., C]`` in the order of `classes`."""
        return values[..., self._places]
