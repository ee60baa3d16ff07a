"""The parts of `benchmarks.scale`: unit costs, a simulation of replicas, and what large loads take."""
