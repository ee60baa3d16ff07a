"""The command line of the statistics: train, predict, evaluate, update, prune."""
