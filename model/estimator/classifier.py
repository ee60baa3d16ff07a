"""`BBBClassifier`: `murho train` of classes as a scikit-learn estimator, with calibrated probabilities.

`BBBClassifier.save` writes the same checkpoints as ``murho train``; ``murho serve`` can serve them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from murho.model.data.class_targets import MOST_CLASSES
from murho.model.estimator.base import BBBEstimator
from murho.model.estimator.class_labels import ClassLabels
from murho.model.estimator_parameters import DataError
from murho.model.python_interface.class_distribution import ClassDistribution
from murho.model.training.target_classes import OF_NUMBERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from murho.model.posterior.model_spec import ModelSpec

__all__ = ["BBBClassifier"]


class BBBClassifier(ClassifierMixin, BBBEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A Bayes-by-Backprop classifier: calibrated probabilities and prediction sets, as a scikit-learn estimator.

    X is as in `BBBRegressor`. y may hold any values that can be sorted: text, whole numbers, truth values.

    Args:
        [options of a training]
        samples: Draws per prediction, S. 0 gives the probabilities of the mu-only network, which are not calibrated.
        random_state: Seed of the split, the initial weights, the minibatches and the draws. An int s gives the same
            fit each time, equal to that of ``murho train --seed s``.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        verbose: Whether to show the progress of a fit on stderr.

    Attributes:
        classes_: The C classes: the distinct values of y, sorted.
        posterior_: The fitted `model.posterior.posterior.Posterior`, whose classes are texts.
            ``posterior_.facts`` has the content of ``model.json``, such as the held-out metrics and the schema.
        n_features_in_: Number of columns of X.
        feature_names_in_: Names of the columns of X, if X was a data frame and all its column names were strings.
    """

    _task: ClassVar[str] = "classification"
    _without: ClassVar[frozenset[str]] = frozenset(OF_NUMBERS)

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit networks to rows, calibrate their probabilities, and score them on held-out rows.

        Args:
            X: Features ``[N, columns]``: a data frame, or numbers with NaN for missing. N is at least 2.
            y: Classes ``[N]``, at least two different ones. The name of a Series becomes the name of the target.
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

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of every row.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.

        Returns:
            ``[B]``, values of y.

        Raises:
            ValueError: X can't be used.
        """
        return self.predict_dist(X).mode()

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of the classes; calibrated if the training table had enough rows (50).

        Args:
            X: Rows ``[B, columns]``, as in `fit`.

        Returns:
            ``[B, C]``, in the order of ``classes_``.

        Raises:
            ValueError: X can't be used.
        """
        return self.predict_dist(X).probabilities

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Logarithm of `predict_proba`, ``[B, C]``."""
        logarithms: NDArray[np.float64] = np.log(self.predict_proba(X))
        return logarithms

    def predict_set(self, X: Any, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Prediction sets, which hold the class of a new row with a probability; never empty.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.
            coverage: The probability, strictly between 0 and 1.

        Returns:
            Whether each class is in the set, ``[B, C]``, bool, in the order of ``classes_``.

        Raises:
            ValueError: X or ``coverage`` can't be used, or ``samples`` is 0.
        """
        return self._distribution(X, least=1).prediction_set(coverage)

    def predict_dist(self, X: Any) -> ClassDistribution:
        """The predictive distribution of every row: ``probabilities``, ``entropy``, ``prediction_set`` and more.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.

        Raises:
            ValueError: X can't be used.
        """
        return self._distribution(X, least=0)

    def sample_functions(self, X: Any, samples: int | None = None) -> NDArray[np.float64]:
        """Probabilities of the classes under draws from the posterior.

        Draw k is one function, the same for all rows and calls, so differences between rows are meaningful.

        Args:
            X: Rows ``[B, columns]``, as in `fit`.
            samples: S; by default the parameter of the estimator.

        Returns:
            ``[B, S, C]``, with the mean `predict_proba` over draws.

        Raises:
            ValueError: X or ``samples`` can't be used.
        """
        return self._distribution(X, samples=samples, least=1).functions()

    def _distribution(self, X: Any, *, samples: int | None = None, least: int) -> ClassDistribution:
        rows = self._asked(X, samples=samples, least=least)
        return ClassDistribution(rows, self._labels.values, self._labels.places)

    def _read_target(self, y: Any) -> pa.Array:
        values = validate_data(self, y=y)
        if values.dtype == object and any(value is None for value in values):
            raise DataError("y: a class is missing; leave out rows without one")
        if values.dtype.kind in "fO":  # others are classes, and scikit-learn would warn of many before the error below
            check_classification_targets(values)
        classes, codes = np.unique(values, return_inverse=True)
        if not len(classes):
            raise DataError("y: found 0 sample(s): give a class for each row of X")
        if len(classes) < 2:
            raise DataError(f"y has one class, {classes.tolist()[0]!r}, in every row: give at least two classes")
        if len(classes) > MOST_CLASSES:
            raise DataError(
                f"y has {len(classes):,} different classes: at most {MOST_CLASSES:,} can be told apart; BBBRegressor "
                "predicts numbers"
            )
        self._set_labels(ClassLabels.of(classes))
        return pa.array(np.array(self._labels.names, dtype=object)[codes], pa.string())

    def _set_labels(self, labels: ClassLabels) -> None:
        self._labels, self.classes_ = labels, labels.values

    def _record(self) -> dict[str, Any]:
        return {"classes": self._labels.to_json()}

    def _read_record(self, record: Mapping[str, Any], spec: ModelSpec) -> None:
        classes = spec.schema.target.classes or ()
        own = record.get("classes", {"names": list(classes)})
        self._set_labels(ClassLabels.from_json(own, classes))
