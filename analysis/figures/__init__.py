"""Figures of the result tables, each with a caption that says n."""
