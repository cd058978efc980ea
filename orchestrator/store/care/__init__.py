"""Verify, repair and tidy a store."""
