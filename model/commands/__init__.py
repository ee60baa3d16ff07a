"""The commands of `murho` that need no service: train, predict, evaluate, update, prune."""
