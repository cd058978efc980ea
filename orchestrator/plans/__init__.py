"""The plan on disk: what is asked for, where it will be stored, and what it costs."""
