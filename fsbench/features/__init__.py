"""Features: the file they live in, how they are made, and the statistics of the base classes."""
