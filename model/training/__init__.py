"""From a table to a checkpoint: options, the search over fits, update, pruning."""
