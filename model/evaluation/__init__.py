"""Scores of predictions on labelled rows: point scores, coverage, reliability, cross-calibration."""
