"""Which checkpoints are served: where they come from, how they are loaded, watched and swapped."""
