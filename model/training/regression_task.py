"""The task of a numeric target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from murho.model.distributions.wide_component import WideRule
from murho.model.encoding.quantile_scores import QuantileScores
from murho.model.encoding.training_range import BeyondRule
from murho.model.evaluation.cross_calibration import calibrate_held_out
from murho.model.fitting.row_scorers import NumberScorer
from murho.model.posterior.spec_parts import LikelihoodSpec
from murho.model.training.noise_choice import require_noise_for, suits
from murho.model.training.search_space import SearchDimension
from murho.model.training.target_limits import target_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from murho.model.distributions.limits import Limits
    from murho.model.distributions.transforms import Standardisation
    from murho.model.evaluation.cross_calibration import Calibrated
    from murho.model.fitting.training_data import TrainingData
    from murho.model.likelihoods.likelihood import Likelihood, NumericLikelihood
    from murho.model.posterior.posterior import Posterior
    from murho.model.training.options import TrainOptions

__all__ = ["RegressionTask"]

FEWEST_ROWS_FOR_A_MIXTURE = 200


class RegressionTask:
    """The target is a number; see `model.training.task.Task`."""

    name: ClassVar[str] = "regression"
    scores_in_loss: ClassVar[int] = 2
    levels_noise: ClassVar[bool] = True
    mixes_encodings: ClassVar[bool] = False  # bands are narrowed as for members that read the same inputs
    classes = None
    class_count = None

    def limits(
        self, targets: NDArray[np.float64], name: str, options: TrainOptions, say: Callable[[str], None]
    ) -> Limits | None:
        """Given limits, and caps that the targets show; the noise has to go with both."""
        limits = target_limits(targets, name, options, say)
        require_noise_for(options, targets, name, limits)
        return limits

    def first_likelihood(self, options: TrainOptions) -> str:
        """Heteroscedastic noise, unless the user has chosen another."""
        return "heteroscedastic" if options.noise == "auto" else options.noise

    def dimensions(self, data: TrainingData, options: TrainOptions) -> Iterator[SearchDimension]:
        """The transform of the target, and its noise."""
        # Noise of one size in the target's unit has no single size after a logarithm.
        if options.transform == "auto" and options.noise != "fixed" and data.fits("log"):
            yield SearchDimension("transform", ("log",))
        if options.noise == "auto":
            few = len(data.split.training) < FEWEST_ROWS_FOR_A_MIXTURE
            others = ("homoscedastic",) if few else ("mixture", "negative-binomial")
            targets = data.targets[data.split.learned]
            yield SearchDimension("noise", tuple(kind for kind in others if suits(kind, targets, data.limits, options)))

    def scorer(self, likelihood: Likelihood, standardisation: Standardisation, spread: float) -> NumberScorer:
        """Scores by NLL and CRPS."""
        return NumberScorer(cast("NumericLikelihood", likelihood), standardisation, spread)

    def likelihood_spec(self, likelihood: Likelihood, data: TrainingData) -> LikelihoodSpec:
        """The noise, with a wide component where it takes one."""
        wide = WideRule.after(len(data.split.learned)) if likelihood.wide_tails else None
        return LikelihoodSpec(**likelihood.to_json(), wide=wide)

    def beyond(self, targets: NDArray[np.float64]) -> BeyondRule:
        """Function values stay within reach of the training targets."""
        return BeyondRule(targets=(float(targets.min()), float(targets.max())))

    def distribution(self, targets: NDArray[np.float64]) -> dict[str, Any] | None:
        """The quantiles of the training targets."""
        scores = QuantileScores.fit(targets)
        return None if scores is None else scores.to_json()

    def calibrate(self, posterior: Posterior, *data: Any, **options: Any) -> Calibrated:
        """Calibrated bands, and their scores."""
        return calibrate_held_out(posterior, *data, **options)
