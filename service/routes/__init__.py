"""Thin HTTP routes: parse, call the core, encode."""
