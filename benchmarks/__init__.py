"""Measured claims: each module is a command that prints a table and writes its figure and its numbers."""
