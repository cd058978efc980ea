"""What is computed of a run, a pair and a repeat."""
