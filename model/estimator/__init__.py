"""`murho train` as scikit-learn estimators: `BBBRegressor` and `BBBClassifier`, one file each."""

from murho.model.estimator.classifier import BBBClassifier
from murho.model.estimator.regressor import BBBRegressor

__all__ = ["BBBClassifier", "BBBRegressor"]
