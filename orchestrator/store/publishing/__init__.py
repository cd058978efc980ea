"""Journals become published shards, one writer at a time."""
