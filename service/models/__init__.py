"""Which versions are served: where they are kept, loading, swapping, and what the service tells of them."""
