"""What happened afterwards: the store of predictions and outcomes, and how good answers were."""
