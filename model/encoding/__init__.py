"""Encodes rows as inputs of a network, and tells how far they lie from the training rows."""
