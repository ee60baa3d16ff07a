"""Tests of `benchmarks.dropout_parts`."""
