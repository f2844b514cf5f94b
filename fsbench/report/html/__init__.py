"""The HTML report: one page that needs nothing else."""
