"""Contextual bandits: decisions by Thompson sampling, from a posterior that learns from the rewards of its decisions."""
