"""What is on this machine, and what is wrong with it."""
