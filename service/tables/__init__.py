"""Tables as bodies: CSV, Arrow, Parquet and NumPy arrays, in blocks."""
