"""One fit by Bayes by Backprop: training data, free energy, gradients, optimisers, schedule, early stopping."""
