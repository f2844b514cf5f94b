"""Figures, one file per kind, in one style."""
