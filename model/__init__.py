"""The statistics of Murho: Bayes-by-Backprop networks for tables, with numpy and torch.

Each package imports only from those before it in this list::

    tables         files and data frames as typed columns, a schema, splits
    encoding       rows as the inputs of a network; how unlike a row is from the training rows; imputation
    distributions  mixtures of Gaussians, transforms of the target, counts, classes
    bbb            Bayes by Backprop on its own: priors, layers, likelihoods, free energy, one fit
    calibration    conformal maps of numbers; calibrated probabilities and sets of classes
    predictive     draws of the weights, and the engines that compute answers from them
    checkpoint     the specification, its files, where they are kept; a loaded posterior
    evaluation     scores, importance, calibration on held-out rows
    training       from a table to a checkpoint: options, the search over fits, update, pruning
    report         facts, charts, a page
    python         `murho.load`, `murho.train`, the scikit-learn estimators

Every package may import the modules `murho.model.errors`, `murho.model.json_validation` and `murho.model.runtime`.
Nothing here imports the HTTP service or the command line.
"""
