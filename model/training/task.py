"""`Task`, the seam between a training and the kind of its target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from murho.model.distributions.limits import Limits
    from murho.model.distributions.transforms import Standardisation
    from murho.model.encoding.training_range import BeyondRule
    from murho.model.evaluation.cross_calibration import Calibrated
    from murho.model.fitting.row_scorers import RowScorer
    from murho.model.fitting.training_data import TrainingData
    from murho.model.likelihoods.likelihood import Likelihood
    from murho.model.posterior.posterior import Posterior
    from murho.model.posterior.spec_parts import LikelihoodSpec
    from murho.model.training.options import TrainOptions
    from murho.model.training.search_space import SearchDimension

__all__ = ["Task"]


class Task(Protocol):
    """What differs in a training between kinds of targets.

    Attributes:
        name: Its name, as ``--task`` and the service say it.
        scores_in_loss: How many of a scorer's scores the loss of the search is made of.
        mixes_encodings: Whether members may read different inputs.
        levels_noise: Whether early in a fit noisy rows pull as hard as others (``beta`` of
            `model.likelihoods.likelihood.Likelihood.gradient`), which is not the gradient of the free energy.
    """

    name: ClassVar[str]
    scores_in_loss: ClassVar[int]
    mixes_encodings: ClassVar[bool]
    levels_noise: ClassVar[bool]

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The classes of the target; None: it is a number."""
        ...

    @property
    def class_count(self) -> int | None:
        """C, or None."""
        ...

    def limits(
        self, targets: NDArray[np.float64], name: str, options: TrainOptions, say: Callable[[str], None]
    ) -> Limits | None:
        """Limits of the target; None: there are none."""
        ...

    def first_likelihood(self, options: TrainOptions) -> str:
        """The observation model that the search starts from."""
        ...

    def dimensions(self, data: TrainingData, options: TrainOptions) -> Iterator[SearchDimension]:
        """The dimensions of the search that only this task has."""
        ...

    def scorer(self, likelihood: Likelihood, standardisation: Standardisation, spread: float) -> RowScorer:
        """Scores held-out rows of a fit.

        Args:
            likelihood: Its observation model.
            standardisation: Of the targets in the fit.
            spread: Standard deviation of the targets.
        """
        ...

    def likelihood_spec(self, likelihood: Likelihood, data: TrainingData) -> LikelihoodSpec:
        """The observation model of the chosen fit, for ``model.json``."""
        ...

    def beyond(self, targets: NDArray[np.float64]) -> BeyondRule:
        """The rule for rows beyond the training rows, from the training targets."""
        ...

    def distribution(self, targets: NDArray[np.float64]) -> dict[str, Any] | None:
        """The distribution of the training targets, for those who show a prediction beside it."""
        ...

    def calibrate(self, posterior: Posterior, *data: Any, **options: Any) -> Calibrated:
        """Calibration and scores on held-out rows; see `model.evaluation.cross_calibration.calibrate_held_out`."""
        ...
