"""Encoding of rows as network inputs, and their distance from the training rows."""
