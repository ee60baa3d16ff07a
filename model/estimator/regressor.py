"""`BBBRegressor`: `murho train` as a scikit-learn estimator, from encoding to calibrated bands.

`BBBRegressor.save` writes the same checkpoints as ``murho train``; ``murho serve`` can serve them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from murho.model.estimator.base import BBBEstimator
from murho.model.estimator_parameters import DataError, ParameterError
from murho.model.python_interface.number_distribution import NumberDistribution

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

__all__ = ["BBBRegressor"]


class BBBRegressor(RegressorMixin, BBBEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A Bayes-by-Backprop regressor: predictions with error bars, as a scikit-learn estimator.

    X may be numeric (the features are then named x0, x1, …) or a data frame of pandas, polars or pyarrow. Text,
    category, boolean and date columns of a data frame become features of these kinds. Missing values are allowed in
    columns with missing values in training. Constant columns are left out.

    Args:
        [options of a training]
        samples: Draws per prediction, S. 0 gives the mean of the mu-only network, without error bars.
        random_state: Seed of the split, the initial weights, the minibatches and the draws. An int s gives the same
            fit each time, equal to that of ``murho train --seed s``.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        verbose: Whether to show the progress of a fit on stderr.

    Attributes:
        posterior_: The fitted `model.posterior.posterior.Posterior`. ``posterior_.facts`` has the content of
            ``model.json``, such as the held-out metrics and the schema.
        n_features_in_: Number of columns of X.
        feature_names_in_: Names of the columns of X, if X was a data frame and all its column names were strings.
    """

    _task: ClassVar[str] = "regression"

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit networks to rows, calibrate their bands, and score them on held-out rows.

        Args:
            X: Features ``[N, columns]``: a data frame, or numbers with NaN for missing. N is at least 2.
            y: Targets ``[N]``, numbers, not all the same. The name of a Series becomes the name of the target.
            sample_weight: Weights of the rows, ``[N]``, from 0 on: how important each row is, see the parameter
                ``weight``, which names a column of X instead. None: all are equal.
            groups: What each row belongs to, ``[N]``: rows of one group are held out together, see the parameter
                ``group``, which names a column of X instead. None: every row stands for itself.

        Returns:
            The estimator itself.

        Raises:
            ValueError: X, y or a parameter can't be used; the message says where and why.
            FitError: The fit became non-finite.
            KeyboardInterrupt: The fit was interrupted. The estimator is fitted, with the best parameters so far.
        """
        return self._fit(X, y, sample_weight, groups)

    def predict(self, X: Any, return_std: bool = False, quantiles: ArrayLike | None = None) -> Any:
        """The mean of the predictive and, if asked for, its standard deviation and quantiles, both calibrated.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.
            return_std: Whether to return the standard deviation too.
            quantiles: K levels, strictly between 0 and 1; None: no quantiles.

        Returns:
            Mean ``[B]``, or a tuple of the mean, the standard deviation ``[B]`` if asked for, and the quantiles
            ``[B, K]`` if asked for; in the target's unit.

        Raises:
            ValueError: X or a level can't be used, or there are no draws for what is asked (``samples`` is 0).
        """
        percentiles = () if quantiles is None else _percentiles(quantiles)
        answer = self._asked(X, least=int(return_std or quantiles is not None)).answer(percentiles=percentiles)
        parts = [answer.mean] + ([answer.std] if return_std else [])
        if quantiles is not None:
            parts.append(np.empty((len(answer), 0)) if answer.percentiles is None else answer.percentiles)
        return parts[0] if len(parts) == 1 else tuple(parts)

    def predict_quantiles(self, X: Any, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> NDArray[np.float64]:
        """Quantiles of the predictive; calibrated if the training table had enough rows (50).

        Args:
            X: Rows ``[B, columns]``, as in `fit`.
            quantiles: K levels, strictly between 0 and 1.

        Returns:
            ``[B, K]``, in the target's unit and in the order of the levels.

        Raises:
            ValueError: X or a level can't be used.
        """
        values: NDArray[np.float64] = self.predict(X, quantiles=quantiles)[1]
        return values

    def predict_dist(self, X: Any) -> NumberDistribution:
        """The predictive distribution of every row: ``mean``, ``std``, ``ppf``, ``cdf``, ``sample`` and more.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.

        Raises:
            ValueError: X can't be used.
        """
        return NumberDistribution(self._asked(X, least=0))

    def sample_functions(self, X: Any, samples: int | None = None) -> NDArray[np.float64]:
        """Function values of draws from the posterior.

        Column k is one function, the same for all rows and calls, so differences between rows are meaningful.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.
            samples: S; by default the parameter of the estimator.

        Returns:
            ``[B, S]``, in the target's unit, without observation noise.

        Raises:
            ValueError: X or ``samples`` can't be used.
        """
        return NumberDistribution(self._asked(X, samples=samples)).functions()

    def _read_target(self, y: Any) -> pa.Array:
        try:
            return pa.array(np.asarray(validate_data(self, y=y, y_numeric=True), dtype=np.float64))
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            raise DataError("y holds text: BBBRegressor predicts numbers, BBBClassifier predicts classes") from error


def _percentiles(quantiles: ArrayLike) -> tuple[float, ...]:
    levels = np.asarray(quantiles, dtype=np.float64)
    if levels.ndim != 1 or not ((levels > 0.0) & (levels < 1.0)).all():
        raise ParameterError(f"quantiles: a list of levels strictly between 0 and 1, not {quantiles!r}")
    return tuple((100.0 * levels).tolist())
