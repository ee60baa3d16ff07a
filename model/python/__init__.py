"""What Python callers get: `murho.load`, `murho.train`, answers as distributions, scikit-learn estimators."""
