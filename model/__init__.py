"""The statistics of Murho: Bayes-by-Backprop networks for tables, with numpy and torch.

Data flows one way::

    tables -> schema -> encoding -> networks -> objective -> fitting -> checkpoint
                                        checkpoint -> draws -> predictive -> calibration

This package knows nothing of the HTTP service. Importing it imports no torch, so that the command line
answers at once.
"""
