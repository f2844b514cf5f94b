"""Training a backbone on the base classes, in the manner of S2M2 and EASY."""
