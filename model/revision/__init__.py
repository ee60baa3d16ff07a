"""The next version of a checkpoint from one that is there: pruning and updating."""
