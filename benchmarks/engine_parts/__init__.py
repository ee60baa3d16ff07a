"""The parts of `benchmarks.engine`: measurement of cells, reference answers, memory, tables."""
