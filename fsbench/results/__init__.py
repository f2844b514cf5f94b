"""Results as plain data: records, statistics, comparisons, published numbers."""
