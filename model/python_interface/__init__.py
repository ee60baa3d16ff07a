"""What Python callers get: `load`, `train`, the model they return, and answers as distributions.

It needs no scikit-learn; `murho.model.estimator` builds on it.
"""
