"""One request for predictions: its body, its options, its answer."""
