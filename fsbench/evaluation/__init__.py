"""Methods over many tasks: runs, comparison, sweeps, tuning, statistics."""
