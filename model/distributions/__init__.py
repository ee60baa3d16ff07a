"""Mixtures of Gaussians, the predictive distribution, target transforms and conformal calibration."""
