"""Backbones: the networks of the field and the checkpoints people have for them."""
