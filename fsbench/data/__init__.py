"""Data sets: what they contain, where they lie, how their images are read."""
