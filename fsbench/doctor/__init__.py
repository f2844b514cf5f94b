"""`fsbench doctor`: check data, weights, features and environment."""
