"""The statistics of Murho: Bayes-by-Backprop networks for tables, with numpy and torch.

Each package imports only from those before it in this list::

    runtime        devices, threads, progress
    data           tables, columns, schema, splits
    encoding       rows as the inputs of a network, and their distance from the training rows
    distributions  mixtures of Gaussians, the predictive distribution, target transforms, calibration
    networks       variational layers, the network, priors
    likelihoods    observation models, one file each
    engines        computation of answers: draws, the forward pass, compiled code
    posterior      checkpoints, and predictions from a loaded checkpoint
    storage        where checkpoints are kept: a directory, or object storage with a local cache
    fitting        one fit: free energy, gradients, Adam
    evaluation     scores, reliability, calibration on held-out rows
    training       from a table to a checkpoint: options, the search over fits
    revision       pruning and updating a checkpoint
    commands       the command line
    python_interface  `murho.load` and `murho.train`, and answers as distributions

Every package may import the modules `murho.model.errors` and `murho.model.json_validation`, and none imports
`murho.model.estimator`. Nothing here imports the HTTP service.
"""
