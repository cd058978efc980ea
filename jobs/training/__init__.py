"""Training: encoding of the data, the loop of the networks, and predictions from scores."""
