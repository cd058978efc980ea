"""How far a sweep is, and why not further."""
