"""Revisions of a checkpoint, which make its next version: pruning weights, and updating with new rows."""
