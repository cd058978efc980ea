"""Verifying, repairing and compacting a store."""
