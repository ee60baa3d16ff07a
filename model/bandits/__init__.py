"""Contextual bandits: Thompson sampling from a posterior that learns from the rewards of its decisions."""
