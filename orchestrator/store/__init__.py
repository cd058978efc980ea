"""Predictions on disk: layout, journals, publishing, reading, verification."""
