"""Benchmarks: commands that measure Murho's claims, print a table, and write their numbers and figures."""
