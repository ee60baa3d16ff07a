"""The task of a target that is one of several classes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from murho.model.data.class_targets import class_codes, labels_from_table
from murho.model.encoding.training_range import BeyondRule
from murho.model.errors import OptionError
from murho.model.evaluation.class_held_out import calibrate_classes
from murho.model.fitting.row_scorers import ClassScorer
from murho.model.posterior.class_shares import ClassShares
from murho.model.posterior.spec_parts import LikelihoodSpec
from murho.model.training.options import flag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from murho.model.distributions.transforms import Standardisation
    from murho.model.evaluation.cross_calibration import Calibrated
    from murho.model.fitting.training_data import TrainingData
    from murho.model.likelihoods.class_likelihood import ClassLikelihood
    from murho.model.likelihoods.likelihood import Likelihood
    from murho.model.posterior.posterior import Posterior
    from murho.model.training.candidates import Candidate
    from murho.model.training.options import TrainOptions
    from murho.model.training.search_space import SearchDimension

__all__ = ["ClassificationTask"]

OF_NUMBERS = {
    "noise": "auto",
    "noise_sigma": None,
    "transform": "auto",
    "target_minimum": None,
    "target_maximum": None,
}
"""Options that only numbers have, and the values that say nothing."""
FEW_ROWS_OF_A_CLASS = 10
SHOWN = 12


@dataclass(frozen=True, slots=True)
class ClassificationTask:
    """The target is one of C classes; see `model.training.task.Task`.

    Attributes:
        classes: Their names, sorted.
    """

    name: ClassVar[str] = "classification"
    scores_in_loss: ClassVar[int] = 1

    classes: tuple[str, ...]

    @property
    def class_count(self) -> int:
        """C."""
        return len(self.classes)

    def require_options(self, options: TrainOptions) -> None:
        """Check that no option is given that only numbers have.

        Raises:
            OptionError: One is given; it is named.
        """
        given = [name for name, value in OF_NUMBERS.items() if getattr(options, name) != value]
        if given:
            raise OptionError(
                f"{flag(given[0])} is for a target that is a number; this one has {len(self.classes)} classes: "
                "leave it out, or give --task regression if the target is a number"
            )

    def describe(self, labels: NDArray[np.object_], target: str, say: Callable[[str], None]) -> None:
        """Tell the user how many rows each class has, and which classes have too few to be learned well."""
        counts = Counter(label for label in labels.tolist() if label is not None)
        listed = ", ".join(f"{name!r} {count:,}" for name, count in counts.most_common(SHOWN))
        more = f" and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
        say(f"the target {target!r} has {len(counts)} classes, with rows: {listed}{more}")
        rare = {name: count for name, count in counts.items() if count < FEW_ROWS_OF_A_CLASS}
        if rare:
            shown = ", ".join(f"{name!r} ({count})" for name, count in sorted(rare.items())[:SHOWN])
            say(
                f"classes with fewer than {FEW_ROWS_OF_A_CLASS} rows: {shown}{', …' if len(rare) > SHOWN else ''}; "
                "their probabilities rest on little"
            )

    def read(self, table: pa.Table, target: str) -> NDArray[np.float64]:
        """The index of each row's class."""
        return class_codes(labels_from_table(table, target), self.classes, target)

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
        candidate: Candidate,  # noqa: ARG002 - the likelihood says its kind
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
