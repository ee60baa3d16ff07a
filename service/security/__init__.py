"""API keys, and what a caller may take."""
