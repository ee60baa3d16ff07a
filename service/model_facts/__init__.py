"""What the page and `GET /models/{name}` tell of a model."""
