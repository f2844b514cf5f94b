"""Tasks: named protocols and the sampler that turns (protocol, seed, index) into rows."""
