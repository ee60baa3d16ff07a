"""Tests of `benchmarks.scale_parts`."""
