"""Checkpoints: their specification, their files, where they are kept, and a loaded posterior that answers."""
