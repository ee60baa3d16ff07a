"""Checkpoints on disk, and a loaded one that answers."""
