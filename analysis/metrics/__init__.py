"""Metrics of runs, pairs and repeats."""
