"""Scores, reliability, importance, and calibration on held-out rows."""
