"""Training, from a table to a checkpoint: options, the search over candidate fits."""
