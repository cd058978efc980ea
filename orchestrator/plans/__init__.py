"""The plan on disk: the requested runs, where they are stored, and what they cost."""
