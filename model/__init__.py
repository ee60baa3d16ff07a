"""The statistics of Murho: Bayes-by-Backprop networks for tables, with numpy and torch.

Packages, each of which imports only from those above it::

    runtime        devices, threads, budgets of time, progress
    data           tables, columns, schema, splits
    encoding       rows to the inputs of a network, and how far they lie from the training rows
    distributions  mixtures of Gaussians, the predictive distribution, target transforms, calibration
    networks       variational layers, the network, priors
    likelihoods    observation models, one file each
    engines        what computes answers: draws, the forward pass, compiled code
    posterior      checkpoints, and a loaded one that answers
    fitting        free energy, gradients, optimisers: one fit
    evaluation     scores, reliability, calibration on held-out rows
    training       from a table to a checkpoint: the search over fits, options, snapshots
    revision       pruning and updating a checkpoint
    commands       the command line

`murho.model.errors` and `murho.model.json_validation` lie below all of them, `murho.model.estimator` above.
This package knows nothing of the HTTP service.
"""
