"""Scores of predictions on labelled rows: errors of the mean, NLL and CRPS, coverage, PIT, cross-calibration."""
