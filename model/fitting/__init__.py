"""One fit: the free energy, its gradient, optimisers, schedule, early stopping."""
