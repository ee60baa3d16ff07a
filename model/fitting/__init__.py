"""One fit by Bayes by Backprop: training data, free energy, gradients, Adam, schedule, early stopping."""
