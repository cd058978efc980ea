"""Training: encode data, train networks, turn scores into predictions."""
