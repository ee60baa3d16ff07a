"""Parts of `benchmarks.mushroom`: the bandit problems, the agents, and the loop in which they meet."""
