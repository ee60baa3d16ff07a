"""Rows as the inputs of a network, and how unlike the training rows they are."""
