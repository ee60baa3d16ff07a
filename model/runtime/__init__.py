"""Devices, threads, time budgets, progress bars and durable files."""
