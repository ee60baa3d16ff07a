"""Where and how long to compute: devices, threads, budgets of time, progress."""
