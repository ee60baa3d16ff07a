"""Devices, threads, progress bars and durable files."""
