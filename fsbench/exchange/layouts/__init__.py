"""What content means: ways in which other programs lay out features."""
