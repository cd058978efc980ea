"""Journals of finished runs, which training processes append to."""
