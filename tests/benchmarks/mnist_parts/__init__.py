"""Tests of `benchmarks.mnist_parts`."""
