"""From draws of the weights to answers: the engines, and what an answer holds."""
