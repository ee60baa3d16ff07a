"""Tests of `benchmarks.engine_parts`."""
