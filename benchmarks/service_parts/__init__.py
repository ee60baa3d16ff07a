"""The parts of `benchmarks.service`: the load, the servers that get it, what is measured, and the tables."""
