"""Parts of `benchmarks.mnist`: images, fits, scores, pruning, doubt, checkpoints, figures."""
