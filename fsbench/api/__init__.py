"""The Python interface: methods on arrays in memory, on feature files, and features from images."""
