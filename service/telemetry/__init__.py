"""Metrics, the log, and what each version has done."""
