"""Answers from the result tables."""
