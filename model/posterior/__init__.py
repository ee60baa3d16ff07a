"""Checkpoints on disk, and the posterior loaded from one, which answers requests."""
