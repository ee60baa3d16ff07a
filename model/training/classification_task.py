"""The task of a target that is one of several classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from murho.model.encoding.training_range import BeyondRule
from murho.model.evaluation.class_held_out import calibrate_classes
from murho.model.fitting.row_scorers import ClassScorer
from murho.model.posterior.class_shares import ClassShares
from murho.model.posterior.spec_parts import LikelihoodSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from murho.model.distributions.transforms import Standardisation
    from murho.model.evaluation.cross_calibration import Calibrated
    from murho.model.fitting.training_data import TrainingData
    from murho.model.likelihoods.class_likelihood import ClassLikelihood
    from murho.model.likelihoods.likelihood import Likelihood
    from murho.model.posterior.posterior import Posterior
    from murho.model.training.options import TrainOptions
    from murho.model.training.search_space import SearchDimension

__all__ = ["ClassificationTask"]


@dataclass(frozen=True, slots=True)
class ClassificationTask:
    """The target is one of C classes; see `model.training.task.Task`.

    Attributes:
        classes: Their names, sorted.
    """

    name: ClassVar[str] = "classification"
    scores_in_loss: ClassVar[int] = 1
    mixes_encodings: ClassVar[bool] = True
    levels_noise: ClassVar[bool] = False

    classes: tuple[str, ...]

    @property
    def class_count(self) -> int:
        """C."""
        return len(self.classes)

    def limits(
        self,
        targets: NDArray[np.float64],  # noqa: ARG002 - only numbers have limits
        name: str,  # noqa: ARG002
        options: TrainOptions,  # noqa: ARG002
        say: Callable[[str], None],  # noqa: ARG002
    ) -> None:
        """Classes have no limits."""
        return

    def first_likelihood(self, options: TrainOptions) -> str:  # noqa: ARG002 - there is nothing to choose
        """One logit for two classes, else one for each."""
        return "bernoulli" if len(self.classes) == 2 else "categorical"

    def dimensions(self, data: TrainingData, options: TrainOptions) -> Iterator[SearchDimension]:  # noqa: ARG002
        """None: neither transform nor noise."""
        return iter(())

    def scorer(
        self,
        likelihood: Likelihood,
        standardisation: Standardisation,  # noqa: ARG002 - class indices have none
        spread: float,  # noqa: ARG002
    ) -> ClassScorer:
        """Scores by log loss and Brier score."""
        return ClassScorer(cast("ClassLikelihood", likelihood))

    def likelihood_spec(
        self,
        likelihood: Likelihood,
        data: TrainingData,
    ) -> LikelihoodSpec:
        """The likelihood, with the class shares of the training rows."""
        learned = data.split.learned
        weights = None if data.weights is None else data.weights[learned]
        return LikelihoodSpec(
            **likelihood.to_json(), shares=ClassShares.of(data.targets[learned], len(self.classes), weights)
        )

    def beyond(self, targets: NDArray[np.float64]) -> BeyondRule:  # noqa: ARG002 - logits have no limits
        """Rows beyond the training rows are drawn towards the class shares by the predictive."""
        return BeyondRule()

    def distribution(self, targets: NDArray[np.float64]) -> dict[str, Any]:
        """Training rows of each class."""
        counts = np.bincount(targets.astype(np.int64), minlength=len(self.classes))
        return {"classes": dict(zip(self.classes, counts.tolist(), strict=True))}

    def calibrate(self, posterior: Posterior, *data: Any, **options: Any) -> Calibrated:
        """Calibrated probabilities and prediction sets, and their scores."""
        return calibrate_classes(posterior, *data, **options)
