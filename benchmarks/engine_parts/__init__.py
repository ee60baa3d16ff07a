"""The parts of `benchmarks.engine`: cells are measured, answers judged by a reference, tables made."""
