"""The progress of a sweep, and what holds it up."""
