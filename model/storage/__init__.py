"""Where checkpoints are kept: a directory, or object storage such as ``s3://bucket/prefix`` through fsspec.

`model.storage.stores.store_at` decides by the place. fsspec is imported only for a URL.
"""
